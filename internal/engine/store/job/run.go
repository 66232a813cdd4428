package job

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

const (
	// lease is how long a job stays with its runner, margin how much earlier the
	// runner begins nothing more: longer than a run of a script may take.
	lease  = 15 * time.Second
	margin = 3 * time.Second
	// stepSize is how many messages are written down and changed together.
	stepSize = 200
	// clockMargin is how far the clocks of the nodes may differ: a message that came so
	// much later than the job still counts as one that was there.
	clockMargin = 2 * time.Second
	// remembered is for how long what a step has answered is found again.
	remembered = store.Tombstone - time.Second
	// mostLeft is how many messages that were in flight a job knows by their names.
	mostLeft = 8192
)

// ErrLost is returned to a runner whose job another one has taken, or that has ended.
var ErrLost = errors.New("job is run by another, or has ended")

// record is what Redis has of a job. Its place, Part to Rest, is behind the messages of Step.
type record struct {
	Job

	Part   int                `json:"part,omitempty"`    // of the walk
	Cursor string             `json:"cursor,omitempty"`  // in a listing
	Scan   *inspect.ScanPlace `json:"scan,omitempty"`    // in the names
	Rest   []string           `json:"rest,omitempty"`    // members to be looked at before the walk goes on
	IsLast bool               `json:"is_last,omitempty"` // the walk is over
	Left   []string           `json:"left,omitempty"`    // members that were in flight as the job was about them
	More   int64              `json:"more,omitempty"`    // how many more were, see mostLeft
	Mark   string             `json:"mark"`              // the tokens that it gives begin with it
	Serial uint64             `json:"serial"`            // of the tokens that it has given
	Step   *step              `json:"step,omitempty"`
}

// step is what the runner is about to do.
type step struct {
	At    time.Time `json:"at"` // by Redis' clock, before it began
	Items []item    `json:"items"`
}

// item is one message of a step.
type item struct {
	Member string `json:"member"`
	Token  string `json:"token"` // of the operation
	Life   string `json:"life"`  // the token in force when it was matched; empty where it cannot be read
}

// Run is a job in the hands of the instance that runs it. It is not safe for
// concurrent use.
//
// # Why its tally is true
//
// A step finds messages, writes down which it is about to change and under which
// token, with where it goes on, and then changes them. The write fails where another
// runner has taken the job, and no run takes effect later than its lease. So who
// takes the job over finds the step whose outcome is not recorded, and asks once more
// under the same tokens: each run looks first what an earlier one has answered, which
// is remembered for a minute. What was not done by then is done now: the token in
// force must be the one that was matched. Later than a minute, one that is not there
// any more may be our own doing or another's, and counts as unknown.
//
// A message that was rescheduled may be met again. A token in force
// that begins with the job's mark tells that it was; a row's message keeps its token,
// and so the token of its operation is made of that, and stays remembered for as long
// as the job may last. An upper bound would not do: messages die, are parked and
// tried again meanwhile. That only messages count that were there at the start makes
// the job end.
//
// # Why it meets all of them
//
// What waits is listed first in the order in which it is due, so that a job with a rate is
// about what comes next before what comes later. But messages move while it is listed: one
// that is released, reclaimed, put back or tried earlier is behind the cursor. So then the
// job goes through the shards' messages by their names, which they keep wherever they
// are: a scan of a hash returns each that is in it from the scan's beginning to its end,
// and a server that has taken over, to which the cursor means nothing, has its shard
// scanned anew. The index of a tag is in the order of names itself, and a dead letter
// that comes later is listed later, so these are gone through once. Only what others put
// back from the dead letters meanwhile may be missed, and counts as one that came later.
//
// A message that was in flight when the job was about it stays known by its name, see
// Left. When the walk is over these are looked at again, round by round, until none is
// left or [Run.Finish] gives up on them: then they are what still matches.
type Run struct {
	jobs   *Jobs
	owner  string
	record record
	leased time.Time // until then
	stop   bool
	scan   *inspect.Scan
	moves  int // how often in a row all that were looked at by name had moved
}

// Take takes a job that nobody runs; [ErrLost] where somebody does, or it has ended.
func (j *Jobs) Take(ctx context.Context, id, instance string) (*Run, error) {
	r := &Run{jobs: j, owner: instance + "/" + rand.Text()}
	text, err := r.keepAs(ctx, id, "", lease, false)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(text), &r.record); err != nil {
		r.record = record{Job: Job{ID: id}}
		return nil, r.end(ctx, Failed, "its record cannot be read: "+err.Error())
	}
	r.record.State, r.record.Instance = Running, instance
	return r, nil
}

// Job is how far it is.
func (r *Run) Job() Job { return r.record.Job }

// Release gives the job back, for others to go on at once.
func (r *Run) Release(ctx context.Context) error {
	r.record.State = Waiting
	return r.keep(ctx, 0, false)
}

// Step does what was written down, and writes down what is next: at most so many
// messages. It returns how many it has changed. After an error it may be called again,
// but for [ErrLost].
func (r *Run) Step(ctx context.Context, most int) (changed int, err error) {
	if r.record.Step == nil {
		switch {
		case r.stop:
			return 0, r.end(ctx, Stopped, "")
		case r.record.IsLast && len(r.record.Rest)+len(r.record.Left) == 0:
			return 0, r.Finish(ctx)
		case r.jobs.queue.Now().Sub(r.record.StartedAt) > life:
			return 0, r.end(ctx, Failed, "it took longer than "+life.String())
		}
		next := r.record // The old one holds where this fails.
		next.Rest, next.Left = slices.Clone(next.Rest), slices.Clone(next.Left)
		if err := r.find(ctx, &next, min(most, stepSize)); err != nil {
			return 0, err
		}
		before := r.record
		r.record = next
		if err := r.keep(ctx, lease, false); err != nil {
			r.record = before
			return 0, err
		}
	} else if err := r.keep(ctx, lease, false); err != nil { // The lease is renewed.
		return 0, err
	}
	return r.work(ctx)
}

// Waits reports whether nothing is to be done but to look again at what was in flight, which
// the next step does.
func (r *Run) Waits() bool {
	return r.record.Step == nil && r.record.IsLast && len(r.record.Rest) == 0 && len(r.record.Left) > 0
}

// Finish ends the job whose walk is over, whatever was in flight.
func (r *Run) Finish(ctx context.Context) error { return r.end(ctx, Done, "") }

// find makes the next step.
func (r *Run) find(ctx context.Context, next *record, most int) error {
	list, err := r.next(ctx, next, most)
	if err != nil {
		return err
	}
	next.IsLast = next.IsLast || next.Part >= len(next.Spec.walk())
	var found []*inspect.Listed
	for i := range list {
		if m := &list[i]; next.means(m) {
			found = append(found, m)
		}
	}
	if len(found) > 0 {
		last := found[len(found)-1]
		next.Place = Place{State: last.State, DueAt: last.Found.DueAt, ID: last.Found.ID}
	}
	if next.Spec.DryRun {
		next.Tally.Matched += int64(len(found))
		return nil
	}
	work := &step{At: r.jobs.queue.Now()}
	for _, m := range found {
		if m.Found.Err != nil && (next.Spec.Verb == Reschedule || next.Spec.Verb == Redrive) {
			next.Tally.Matched++
			next.Tally.Failed++
			continue
		}
		work.Items = append(work.Items, next.item(m))
	}
	if work.Items, err = r.jobs.unmoved(ctx, next.Spec.Verb, work.Items); err != nil {
		return err
	}
	for _, item := range work.Items {
		next.matched(item.Member)
	}
	if len(work.Items) > 0 {
		next.Step = work
	}
	return nil
}

// means reports whether the job is to change the message: it was there at the start,
// and the job has not moved it.
func (j *record) means(m *inspect.Listed) bool {
	until := j.StartedAt.Add(clockMargin)
	if m.Found.ScheduledAt.After(until) || j.Spec.isOfDead() && j.Spec.Verb != Cancel && m.Found.DiedAt.After(until) {
		return false
	}
	return !hasMark(m.Found.Token, j.Mark)
}

// matched counts a message, once: one that was in flight before is no more.
func (j *record) matched(member string) {
	if at := slices.Index(j.Left, member); at >= 0 {
		j.Left = slices.Delete(j.Left, at, at+1)
		j.Tally.TooLate--
		return
	}
	j.Tally.Matched++
}

// left remembers a message that was in flight. Of very many the last are only counted.
func (j *record) left(member string) {
	if len(j.Left) < mostLeft {
		j.Left = append(j.Left, member)
	} else {
		j.More++
	}
}

// work changes the messages of the step that are not answered yet.
func (r *Run) work(ctx context.Context) (changed int, err error) {
	step := r.record.Step
	if step == nil {
		return 0, nil
	}
	ctx, cancel := context.WithDeadline(ctx, r.leased.Add(-margin))
	defer cancel()
	answers := r.jobs.apply(ctx, &r.record.Spec, step.Items)
	// What an earlier run has answered may be forgotten by now.
	forgotten := r.jobs.queue.Now().Sub(step.At) > remembered
	var left []item
	for i, a := range answers {
		if a.Err != nil {
			left, err = append(left, step.Items[i]), a.Err
			continue
		}
		changed++
		r.count(a.Code, step.Items[i].Member, forgotten)
	}
	if step.Items = left; len(left) == 0 {
		r.record.Step = nil
	}
	return changed, err
}

func (r *Run) count(code store.Code, member string, forgotten bool) {
	t := &r.record.Tally
	switch code {
	case store.Done:
		t.Done++
	case store.DoneMaybePublished:
		t.MaybePublished++
	case store.InFlight:
		t.TooLate++
		r.record.left(member)
	default:
		if r.record.Rest = append(r.record.Rest, member); forgotten { // Others may have changed it only.
			t.Unknown++
		} else {
			t.Gone++
		}
	}
}

// end is the last that is written of the job.
func (r *Run) end(ctx context.Context, state State, why string) error {
	r.record.State, r.record.Err, r.record.EndedAt = state, why, r.jobs.queue.Now()
	if remaining := int64(len(r.record.Left)) + r.record.More + r.record.Tally.Failed; state == Done && !r.record.Spec.DryRun {
		r.record.Remaining = &remaining
	}
	r.record.Left, r.record.Cursor = nil, ""
	return r.keep(ctx, lease, true)
}

func (r *Run) keep(ctx context.Context, lease time.Duration, ended bool) error {
	text, err := json.Marshal(&r.record)
	if err != nil {
		return err
	}
	_, err = r.keepAs(ctx, r.record.ID, string(text), lease, ended)
	return err
}

// keepAs writes the record, or reads it where none is given.
func (r *Run) keepAs(ctx context.Context, id, text string, lease time.Duration, ended bool) (string, error) {
	asked := time.Now()
	cmd, err := r.jobs.queue.Run(ctx, scripts.JobKeep, []string{r.jobs.queue.Keys().Jobs()}, id, r.owner, lease.Milliseconds(), text, scripts.Flag(ended))
	if err != nil {
		return "", fmt.Errorf("keep job: %w", err)
	}
	reply := scripts.NewReply(cmd)
	if reply.Int(0) == 0 {
		return "", errors.Join(reply.Err, ErrLost)
	}
	r.leased, r.stop = asked.Add(lease), reply.Int(3) == 1
	return reply.Text(2), reply.Err
}

// hasMark reports whether the job of that mark has given the token.
func hasMark(token, mark string) bool {
	return len(token) == message.TokenLength && token[:markLength] == mark
}
