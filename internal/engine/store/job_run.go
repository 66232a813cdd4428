package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

const (
	// jobLease is how long a job stays with its runner, jobMargin how much earlier the
	// runner begins nothing more: longer than a run of a script may take.
	jobLease  = 15 * time.Second
	jobMargin = 3 * time.Second
	// jobStep is how many messages are written down and changed together.
	jobStep = 200
	// clockMargin is how far the clocks of the nodes may differ: a message that came so
	// much later than the job still counts as one that was there.
	clockMargin = 2 * time.Second
	// mostLeft is how many messages that were in flight a job knows by their names.
	mostLeft = 8192
)

// ErrJobLost is returned to a runner whose job another one has taken, or that has ended.
var ErrJobLost = errors.New("job is run by another, or has ended")

// jobRecord is what Redis has of a job. Its place, Part to Rest, is behind the messages of Step.
type jobRecord struct {
	Job

	Part   int        `json:"part,omitempty"`    // of the walk
	Cursor string     `json:"cursor,omitempty"`  // in a listing
	Scan   *scanPlace `json:"scan,omitempty"`    // in the names
	Rest   []string   `json:"rest,omitempty"`    // members to be looked at before the walk goes on
	IsLast bool       `json:"is_last,omitempty"` // the walk is over
	Left   []string   `json:"left,omitempty"`    // members that were in flight as the job was about them
	More   int64      `json:"more,omitempty"`    // how many more were, see mostLeft
	Mark   string     `json:"mark"`              // the tokens that it gives begin with it
	Serial uint64     `json:"serial"`            // of the tokens that it has given
	Step   *jobWork   `json:"step,omitempty"`
}

// jobWork is what the runner is about to do.
type jobWork struct {
	At    time.Time `json:"at"` // by Redis' clock, before it began
	Items []jobItem `json:"items"`
}

// jobItem is one message of a step.
type jobItem struct {
	Member string `json:"member"`
	Token  string `json:"token"` // of the operation
	Life   string `json:"life"`  // the token in force when it was matched; empty where it cannot be read
}

// JobRun is a job in the hands of the instance that runs it. It is not safe for
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
// left or [JobRun.Finish] gives up on them: then they are what still matches.
type JobRun struct {
	q      *Jobs
	owner  string
	record jobRecord
	leased time.Time // until then
	stop   bool
	names  int // how many the next page of them has
	moves  int // how often in a row all that were looked at by name had moved
}

// Take takes a job that nobody runs; [ErrJobLost] where somebody does, or it has ended.
func (q *Jobs) Take(ctx context.Context, id, instance string) (*JobRun, error) {
	r := &JobRun{q: q, owner: instance + "/" + rand.Text()}
	text, err := r.keepAs(ctx, id, "", jobLease, false)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(text), &r.record); err != nil {
		r.record = jobRecord{Job: Job{ID: id}}
		return nil, r.end(ctx, JobFailed, "its record cannot be read: "+err.Error())
	}
	r.record.State, r.record.Instance = JobRunning, instance
	return r, nil
}

// Job is how far it is.
func (r *JobRun) Job() Job { return r.record.Job }

// Release gives the job back, for others to go on at once.
func (r *JobRun) Release(ctx context.Context) error {
	r.record.State = JobWaiting
	return r.keep(ctx, 0, false)
}

// Step does what was written down, and writes down what is next: at most so many
// messages. It returns how many it has changed. After an error it may be called again,
// but for [ErrJobLost].
func (r *JobRun) Step(ctx context.Context, most int) (changed int, err error) {
	if r.record.Step == nil {
		switch {
		case r.stop:
			return 0, r.end(ctx, JobStopped, "")
		case r.record.IsLast && len(r.record.Rest)+len(r.record.Left) == 0:
			return 0, r.Finish(ctx)
		case r.q.Now().Sub(r.record.StartedAt) > jobLife:
			return 0, r.end(ctx, JobFailed, "it took longer than "+jobLife.String())
		}
		next := r.record // The old one holds where this fails.
		next.Rest, next.Left = slices.Clone(next.Rest), slices.Clone(next.Left)
		if err := r.find(ctx, &next, min(most, jobStep)); err != nil {
			return 0, err
		}
		before := r.record
		r.record = next
		if err := r.keep(ctx, jobLease, false); err != nil {
			r.record = before
			return 0, err
		}
	} else if err := r.keep(ctx, jobLease, false); err != nil { // The lease is renewed.
		return 0, err
	}
	return r.work(ctx)
}

// Waits reports whether nothing is to be done but to look again at what was in flight, which
// the next step does.
func (r *JobRun) Waits() bool {
	return r.record.Step == nil && r.record.IsLast && len(r.record.Rest) == 0 && len(r.record.Left) > 0
}

// Finish ends the job whose walk is over, whatever was in flight.
func (r *JobRun) Finish(ctx context.Context) error { return r.end(ctx, JobDone, "") }

// find makes the next step.
func (r *JobRun) find(ctx context.Context, next *jobRecord, most int) error {
	list, err := r.next(ctx, next, most)
	if err != nil {
		return err
	}
	next.IsLast = next.IsLast || next.Part >= len(next.Spec.walk())
	var found []*Listed
	for i := range list {
		if m := &list[i]; next.means(m) {
			found = append(found, m)
		}
	}
	if len(found) > 0 {
		last := found[len(found)-1]
		next.Place = JobPlace{State: last.State, DueAt: last.Found.DueAt, ID: last.Found.ID}
	}
	if next.Spec.DryRun {
		next.Tally.Matched += int64(len(found))
		return nil
	}
	step := &jobWork{At: r.q.Now()}
	for _, m := range found {
		if m.Found.Err != nil && (next.Spec.Verb == JobReschedule || next.Spec.Verb == JobRedrive) {
			next.Tally.Matched++
			next.Tally.Failed++
			continue
		}
		step.Items = append(step.Items, next.item(m))
	}
	if step.Items, err = r.q.unmoved(ctx, next.Spec.Verb, step.Items); err != nil {
		return err
	}
	for _, item := range step.Items {
		next.matched(item.Member)
	}
	if len(step.Items) > 0 {
		next.Step = step
	}
	return nil
}

// means reports whether the job is to change the message: it was there at the start,
// and the job has not moved it.
func (j *jobRecord) means(m *Listed) bool {
	until := j.StartedAt.Add(clockMargin)
	if m.Found.ScheduledAt.After(until) || j.Spec.isOfDead() && j.Spec.Verb != JobCancel && m.Found.DiedAt.After(until) {
		return false
	}
	return !hasMark(m.Found.Token, j.Mark)
}

// matched counts a message, once: one that was in flight before is no more.
func (j *jobRecord) matched(member string) {
	if at := slices.Index(j.Left, member); at >= 0 {
		j.Left = slices.Delete(j.Left, at, at+1)
		j.Tally.TooLate--
		return
	}
	j.Tally.Matched++
}

// left remembers a message that was in flight. Of very many the last are only counted.
func (j *jobRecord) left(member string) {
	if len(j.Left) < mostLeft {
		j.Left = append(j.Left, member)
	} else {
		j.More++
	}
}

// work changes the messages of the step that are not answered yet.
func (r *JobRun) work(ctx context.Context) (changed int, err error) {
	step := r.record.Step
	if step == nil {
		return 0, nil
	}
	ctx, cancel := context.WithDeadline(ctx, r.leased.Add(-jobMargin))
	defer cancel()
	answers := r.q.apply(ctx, &r.record.Spec, step.Items)
	// What an earlier run has answered may be forgotten by now.
	forgotten := r.q.Now().Sub(step.At) > repeatable
	var left []jobItem
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

func (r *JobRun) count(code Code, member string, forgotten bool) {
	t := &r.record.Tally
	switch code {
	case Done:
		t.Done++
	case DoneMaybePublished:
		t.MaybePublished++
	case InFlight:
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
func (r *JobRun) end(ctx context.Context, state JobState, why string) error {
	r.record.State, r.record.Err, r.record.EndedAt = state, why, r.q.Now()
	if remaining := int64(len(r.record.Left)) + r.record.More + r.record.Tally.Failed; state == JobDone && !r.record.Spec.DryRun {
		r.record.Remaining = &remaining
	}
	r.record.Left, r.record.Cursor = nil, ""
	return r.keep(ctx, jobLease, true)
}

func (r *JobRun) keep(ctx context.Context, lease time.Duration, ended bool) error {
	text, err := json.Marshal(&r.record)
	if err != nil {
		return err
	}
	_, err = r.keepAs(ctx, r.record.ID, string(text), lease, ended)
	return err
}

// keepAs writes the record, or reads it where none is given.
func (r *JobRun) keepAs(ctx context.Context, id, text string, lease time.Duration, ended bool) (string, error) {
	asked := time.Now()
	cmd, err := r.q.conn.Run(ctx, scripts.JobKeep, []string{r.q.keys.Jobs()}, id, r.owner, lease.Milliseconds(), text, scripts.Flag(ended))
	if err != nil {
		return "", fmt.Errorf("keep job: %w", err)
	}
	reply := scripts.NewReply(cmd)
	if reply.Int(0) == 0 {
		return "", errors.Join(reply.Err, ErrJobLost)
	}
	r.leased, r.stop = asked.Add(lease), reply.Int(3) == 1
	return reply.Text(2), reply.Err
}

// hasMark reports whether the job of that mark has given the token.
func hasMark(token, mark string) bool {
	return len(token) == message.TokenLength && token[:markLength] == mark
}
