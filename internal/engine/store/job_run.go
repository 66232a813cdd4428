package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
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
	// mostLate is how many messages that were too late a job remembers.
	mostLate = 4096
)

// ErrJobLost is returned to a runner whose job another one has taken, or that has ended.
var ErrJobLost = errors.New("job is run by another, or has ended")

// jobRecord is what Redis has of a job. Cursor is behind the messages of Step.
type jobRecord struct {
	Job

	Cursor string   `json:"cursor,omitempty"`
	IsLast bool     `json:"is_last,omitempty"` // nothing follows Cursor
	Mark   string   `json:"mark"`              // the tokens that it gives begin with it
	Serial uint64   `json:"serial"`            // of the tokens that it has given
	Late   []uint64 `json:"late,omitempty"`    // hashes of those that were too late
	Step   *jobWork `json:"step,omitempty"`
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
// A message that was rescheduled may come before the cursor again. A token in force
// that begins with the job's mark tells that it was; a row's message keeps its token,
// and so the token of its operation is made of that, and stays remembered for as long
// as the job may last. An upper bound would not do: messages die, are parked and
// tried again meanwhile. That only messages count that were there at the start makes
// the job end.
//
// A message that was in flight when the job was about it, and then comes back, is
// tried again and counted anew: see late.
type JobRun struct {
	q      *Jobs
	owner  string
	record jobRecord
	leased time.Time // until then
	stop   bool
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
		case r.record.IsLast:
			return 0, r.end(ctx, JobDone, "")
		case r.q.Now().Sub(r.record.StartedAt) > jobLife:
			return 0, r.end(ctx, JobFailed, "it took longer than "+jobLife.String())
		}
		next := r.record // The old one holds where this fails.
		next.Late = slices.Clone(next.Late)
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

// find makes the next step.
func (r *JobRun) find(ctx context.Context, next *jobRecord, most int) error {
	page, err := r.q.admin.List(ctx, ListRequest{Filter: next.Spec.Filter, Limit: most, After: next.Cursor})
	if err != nil {
		return err
	}
	next.Cursor, next.IsLast = page.Next, page.Next == ""
	var found []*Listed
	for i := range page.Messages {
		if m := &page.Messages[i]; next.means(m) {
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
	if m.Found.ScheduledAt.After(until) || m.State == StateDead && j.Spec.Verb != JobCancel && m.Found.DiedAt.After(until) {
		return false
	}
	return !hasMark(m.Found.Token, j.Mark)
}

// matched counts a message, once: one that was too late is no more.
func (j *jobRecord) matched(member string) {
	if at := slices.Index(j.Late, lateHash(member)); at >= 0 {
		j.Late = slices.Delete(j.Late, at, at+1)
		j.Tally.TooLate--
		return
	}
	j.Tally.Matched++
}

// late remembers a message that was too late. Of very many the first are forgotten,
// and so would be counted twice if they came back.
func (j *jobRecord) late(member string) {
	if j.Late = append(j.Late, lateHash(member)); len(j.Late) > mostLate {
		j.Late = slices.Delete(j.Late, 0, 1)
	}
}

func lateHash(member string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(member)) // It never fails.
	return h.Sum64()
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
	switch {
	case code == Done:
		t.Done++
	case code == DoneMaybePublished:
		t.MaybePublished++
	case code == InFlight:
		t.TooLate++
		r.record.late(member)
	case forgotten:
		t.Unknown++
	default:
		t.Gone++
	}
}

// end is the last that is written of the job.
func (r *JobRun) end(ctx context.Context, state JobState, why string) error {
	r.record.State, r.record.Err, r.record.EndedAt = state, why, r.q.Now()
	r.record.Late, r.record.Cursor = nil, ""
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
