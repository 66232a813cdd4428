package job

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// ErrLost is returned to a runner whose job has ended, or was taken by another runner.
var ErrLost = errors.New("job is run by another, or has ended")

// Run drives the course of a job for the instance that runs it. It is not safe for concurrent
// use.
type Run struct {
	jobs   *Jobs
	owner  string
	course course
	scan   *inspect.Scan
}

// Take takes a job that nobody runs. The error is [ErrLost] if somebody does, or the job has ended.
func (j *Jobs) Take(ctx context.Context, id, instance string) (*Run, error) {
	r := &Run{jobs: j, owner: instance + "/" + rand.Text()}
	kept, err := r.keep(ctx, id, "", lease, false)
	if err != nil {
		return nil, err
	}
	job := &r.course.record
	if err := json.Unmarshal([]byte(kept.Text(2)), job); err != nil {
		*job = record{Job: Job{ID: id}}
		r.course.end(Failed, "its record cannot be read: "+err.Error())
		_, err := r.Step(ctx, 0)
		return nil, cmp.Or(err, ErrLost)
	}
	job.State, job.Instance = Running, instance
	r.course.isTold = kept.Int(3) == 1
	r.scan = inspect.NewScan(j.queue, job.Spec.Filter, job.Mark)
	return r, nil
}

// Job returns the job with its progress.
func (r *Run) Job() Job { return r.course.record.Job }

// Waits reports whether all that is left is to look again at messages that were in flight,
// which the next step does.
func (r *Run) Waits() bool { return r.course.waits() }

// Step finishes the recorded step, or records the next one and carries it out, with at most
// so many messages. It returns how many it has changed. It may be called again after any
// error except [ErrLost].
func (r *Run) Step(ctx context.Context, most int) (changed int, err error) {
	for a := r.course.next(r.jobs.queue.Now(), most); a.kind != actionRest; a = r.course.next(r.jobs.queue.Now(), most) {
		n, err := r.do(ctx, a)
		if changed += n; err != nil {
			r.course.discard()
			return changed, err
		}
	}
	return changed, nil
}

// Finish ends a job whose walk is over, whatever is still in flight.
func (r *Run) Finish(ctx context.Context) error {
	r.course.finish(r.jobs.queue.Now())
	_, err := r.Step(ctx, 0)
	return err
}

// Release gives the job back, so that another runner can resume it at once.
func (r *Run) Release(ctx context.Context) error {
	r.course.release()
	_, err := r.Step(ctx, 0)
	return err
}

// do carries out an action of the course, and tells it the result.
func (r *Run) do(ctx context.Context, a action) (changed int, err error) {
	c := &r.course
	switch a.kind {
	case actionList:
		page, err := r.jobs.admin.List(ctx, a.list)
		if err != nil {
			return 0, err
		}
		c.listed(page)
	case actionScan:
		page, err := r.scan.Next(ctx, a.scan)
		if err != nil {
			return 0, err
		}
		c.scanned(page)
	case actionLook:
		found, moved, err := r.jobs.admin.Named(ctx, &c.record.Spec.Filter, a.names)
		if err != nil {
			return 0, err
		}
		c.looked(found, moved)
	case actionAsk:
		moved, err := r.jobs.moved(ctx, a.items)
		if err != nil {
			return 0, err
		}
		c.addStep(moved)
	case actionKeep:
		return 0, r.write(ctx, a.record)
	case actionChange:
		ctx, cancel := context.WithDeadline(ctx, a.until)
		defer cancel()
		answers := r.jobs.change(ctx, &c.record.Spec, a.items)
		for _, answer := range answers {
			if answer.Err != nil {
				err = answer.Err
			}
		}
		return c.changed(r.jobs.queue.Now(), answers), err
	case actionBegin, actionRest:
	}
	return 0, nil
}

// write stores the record, and leaves the job to other runners if it waits for them.
func (r *Run) write(ctx context.Context, record *record) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	mine, asked := lease, time.Now()
	if record.State == Waiting {
		mine = 0
	}
	reply, err := r.keep(ctx, record.ID, string(text), mine, record.State.Ended())
	if err == nil {
		r.course.saved(asked.Add(mine), reply.Int(3) == 1)
	}
	return err
}

// keep takes the job if text is empty; otherwise it stores text and renews the lease.
func (r *Run) keep(ctx context.Context, id, text string, lease time.Duration, ended bool) (*scripts.Reply, error) {
	cmd, err := r.jobs.queue.Run(ctx, scripts.JobKeep, []string{r.jobs.queue.Keys().Jobs()}, id, r.owner, lease.Milliseconds(), text, scripts.Flag(ended))
	if err != nil {
		return nil, fmt.Errorf("keep job: %w", err)
	}
	reply := scripts.NewReply(cmd)
	if reply.Int(0) == 0 {
		return nil, errors.Join(reply.Err, ErrLost)
	}
	return reply, reply.Err
}

// moved returns the tokens of those items whose message the job has moved already.
func (j *Jobs) moved(ctx context.Context, items []item) (map[string]bool, error) {
	layout, err := j.queue.Layout(ctx)
	if err != nil {
		return nil, err
	}
	asked := map[string][]*redis.BoolCmd{}
	_, err = j.queue.Redis(ctx).Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, it := range items {
			for _, home := range layout.Homes(message.SplitMember(it.Member)) {
				asked[it.Token] = append(asked[it.Token], pipe.HExists(ctx, layout.Keys()[home].Gone, it.Token))
			}
		}
		return nil
	})
	moved := map[string]bool{}
	for token, cmds := range asked {
		moved[token] = slices.ContainsFunc(cmds, (*redis.BoolCmd).Val)
	}
	return moved, err
}

// change makes the job's change to each item and returns one answer per item, by index. An
// unreadable message was matched without its token, and another may have taken its place, so
// its topic must match, too.
func (j *Jobs) change(ctx context.Context, spec *Spec, items []item) []store.Answer {
	change := store.BulkChange{OnlyDead: spec.Verb == Redrive || spec.Verb == Purge, Topic: spec.Filter.Topic}
	ofRows := change
	if spec.moves() {
		to := spec.to()
		change.To, ofRows.To, ofRows.Remembered = &to, &to, life // See doc.go.
	}
	answers := make([]store.Answer, len(items))
	for _, isRow := range []bool{false, true} {
		var part []store.BulkItem
		var at []int
		for i, item := range items {
			if message.IsOutboxToken(item.Life) == isRow {
				part, at = append(part, store.BulkItem(item)), append(at, i)
			}
		}
		for n, answer := range j.queue.ChangeMany(ctx, change, part) {
			answers[at[n]] = answer
		}
		change = ofRows
	}
	return answers
}

// to returns the new due time.
func (s *Spec) to() store.When {
	switch {
	case s.By != 0:
		return store.When{FromOwn: true, Ms: s.By.Milliseconds()}
	case s.At.IsZero(): // now
		return store.When{Relative: true}
	default:
		return store.When{Ms: s.At.UnixMilli()}
	}
}
