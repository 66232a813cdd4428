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

// ErrLost is returned to a runner whose job another one has taken, or that has ended.
var ErrLost = errors.New("job is run by another, or has ended")

// Run is a job in the hands of the instance that runs it: it does what the job's course says. It
// is not safe for concurrent use.
type Run struct {
	jobs   *Jobs
	owner  string
	course course
	scan   *inspect.Scan
}

// Take takes a job that nobody runs; [ErrLost] where somebody does, or it has ended.
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

// Job is how far it is.
func (r *Run) Job() Job { return r.course.record.Job }

// Waits reports whether nothing is to be done but to look again at what was in flight, which
// the next step does.
func (r *Run) Waits() bool { return r.course.waits() }

// Step does what was written down, or writes down what is next and does it: at most so many
// messages. It returns how many it has changed. After an error it may be called again,
// but for [ErrLost].
func (r *Run) Step(ctx context.Context, most int) (changed int, err error) {
	for a := r.course.next(r.jobs.queue.Now(), most); a.kind != actionRest; a = r.course.next(r.jobs.queue.Now(), most) {
		n, err := r.do(ctx, a)
		if changed += n; err != nil {
			r.course.failed()
			return changed, err
		}
	}
	return changed, nil
}

// Finish ends the job whose walk is over, whatever was in flight.
func (r *Run) Finish(ctx context.Context) error {
	r.course.finish(r.jobs.queue.Now())
	_, err := r.Step(ctx, 0)
	return err
}

// Release gives the job back, for others to go on at once.
func (r *Run) Release(ctx context.Context) error {
	r.course.release()
	_, err := r.Step(ctx, 0)
	return err
}

// do does what the course says, and tells it what came of that.
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
		c.told(moved)
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

// write has Redis keep the record, for others where it waits for them.
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
		r.course.kept(asked.Add(mine), reply.Int(3) == 1)
	}
	return err
}

// keep takes the job where no text is given; otherwise it writes that down, and renews the lease.
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

// moved are the tokens of the items under which the job has moved a message.
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

// change asks for each item what the job wants; one answer an item, by index. A message that
// cannot be read was matched without its token: another may be there by now, so its topic is
// asked for, too.
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

// to is the new due time.
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
