package operate

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/pause"
)

// PauseState says whether a queue, or a topic of it, is paused.
type PauseState struct {
	Topic  string `json:"topic" doc:"Empty: the whole queue."`
	Paused bool   `json:"paused"`
	Since  string `json:"since,omitempty" format:"date-time" doc:"When the pause began; absent if there was none."`
	By     string `json:"by,omitempty" doc:"Who has paused it; absent if that is not known."`
}

// PauseChange is what a pause or a resume did, and what it is about.
type PauseChange struct {
	PauseState

	Queue    string `json:"queue"`
	Waiting  *int64 `json:"waiting,omitempty" doc:"Messages of the queue that wait; absent, like the others, if Redis did not answer."`
	Due      *int64 `json:"due,omitempty" doc:"Those of them that are due and not parked."`
	Parked   *int64 `json:"parked,omitempty" doc:"Those that are parked; of the topic, if one was given."`
	InFlight *int64 `json:"in_flight,omitempty" doc:"Messages of the queue that are in flight, and are finished."`
}

// Pause stops the queue, or one topic of it, in the name of by.
func (q *Queue) Pause(ctx context.Context, topic, by string) (PauseChange, error) {
	since, err := q.Admin().Pause(ctx, topic, by)
	return q.pauseChange(ctx, PauseState{Topic: topic, Paused: true, Since: Stamp(since)}, err)
}

// Resume ends the pause of the queue or one of its topics.
func (q *Queue) Resume(ctx context.Context, topic string) (PauseChange, error) {
	since, err := q.Admin().Resume(ctx, topic)
	return q.pauseChange(ctx, PauseState{Topic: topic, Since: Stamp(since)}, err)
}

// countTimeout bounds how long it is counted what a pause is about: it is done already.
const countTimeout = 5 * time.Second

func (q *Queue) pauseChange(ctx context.Context, now PauseState, err error) (PauseChange, error) {
	change := PauseChange{PauseState: now, Queue: q.Name}
	if err != nil {
		return change, err
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	stats, err := q.Admin().StatsOfAll(ctx)
	if err != nil {
		return change, nil // It is done, and the figures are not there.
	}
	sum, parked := stats.Sum(), int64(0)
	for _, r := range sum.Routes {
		// A part of a topic is named behind it.
		if now.Topic == "" || r.Route == now.Topic || strings.HasPrefix(r.Route, now.Topic+"/") {
			parked += int64(r.Messages)
		}
	}
	change.Waiting, change.Due, change.Parked, change.InFlight = &sum.Waiting, &sum.Due, &parked, &sum.InFlight
	return change, nil
}

// viewPaused are the pauses of a queue: the whole queue first, then its topics.
func viewPaused(paused map[string]pause.Pause) []PauseState {
	list := []PauseState{}
	for _, topic := range slices.Sorted(maps.Keys(paused)) {
		list = append(list, PauseState{Topic: topic, Paused: true, Since: Stamp(paused[topic].Since), By: paused[topic].By})
	}
	return list
}
