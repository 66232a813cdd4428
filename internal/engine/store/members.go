package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/pause"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Members is the view of a queue for the instances that share its shards.
type Members struct{ *core }

// Members returns the instances' view of the queue.
func (q *Queue) Members() *Members { return &Members{q.core} }

// Heartbeat is the last heartbeat of an instance.
type Heartbeat struct {
	Instance string
	// At is in milliseconds of Redis' clock, which may be set back. A change of it
	// means that the instance lives; its age means nothing.
	At int64
}

// Heartbeat records that the instance lives, and returns the last heartbeat of
// each instance, this one included, sorted by instance. The caller decides which
// of them live; instances silent for forgetAfter by Redis' clock are removed. It
// also returns the paused topics, with the time at which each pause began.
func (q *Members) Heartbeat(ctx context.Context, instance string, forgetAfter time.Duration) ([]Heartbeat, map[string]time.Time, error) {
	cmd, err := q.conn.RunQuiet(ctx, scripts.Heartbeat, []string{q.keys.Instances(), q.keys.Paused()},
		instance, forgetAfter.Milliseconds())
	if err != nil {
		return nil, nil, fmt.Errorf("heartbeat: %w", err)
	}
	r := scripts.NewReply(cmd)
	entries, pauses := r.List(0), r.List(1)
	beats := make([]Heartbeat, 0, len(entries.Values)/2)
	for i := 0; i+1 < len(entries.Values) && err == nil; i += 2 {
		var at float64
		at, err = strconv.ParseFloat(entries.Text(i+1), 64)
		beats = append(beats, Heartbeat{Instance: entries.Text(i), At: int64(at)})
	}
	slices.SortFunc(beats, func(a, b Heartbeat) int { return strings.Compare(a.Instance, b.Instance) })
	fields := make(map[string]string, len(pauses.Values)/2)
	for i := 0; i+1 < len(pauses.Values); i += 2 {
		fields[pauses.Text(i)] = pauses.Text(i + 1)
	}
	since := make(map[string]time.Time, len(fields))
	for topic, p := range pause.Parse(fields) {
		since[topic] = p.Since
	}
	return beats, since, errors.Join(r.Err, entries.Err, pauses.Err, err)
}

// mostRates is how many rates one script handles.
const mostRates = 500

// TakeRates takes from the queue's rates, which all instances share, or gives back what was
// not used; granted is how much of each. It is at most what has accrued since the last take,
// and at most a second's worth. After an error it may or may not have been taken.
func (q *Members) TakeRates(ctx context.Context, asked []message.RateRequest) (granted []int, err error) {
	for from := 0; from < len(asked); from += mostRates {
		args := make([]any, 0, 3*mostRates)
		for _, r := range asked[from:min(from+mostRates, len(asked))] {
			args = append(args, r.Topic, r.Rate, r.Messages)
		}
		cmd, err := q.conn.Run(ctx, scripts.Rate, []string{q.keys.Rates()}, args...)
		if err != nil {
			return nil, fmt.Errorf("rates: %w", err)
		}
		r := scripts.NewReply(cmd)
		for i := range len(args) / 3 {
			granted = append(granted, int(r.Int(i)))
		}
		if r.Err != nil {
			return nil, fmt.Errorf("rates: %w", r.Err)
		}
	}
	return granted, nil
}

// Leave removes the instance, and tells the others.
func (q *Members) Leave(ctx context.Context, instance string) error {
	if _, err := q.conn.Run(ctx, scripts.Leave, []string{q.keys.Instances()}, instance); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return nil
}
