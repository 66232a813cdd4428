package job

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Jobs manages the jobs of a queue.
type Jobs struct {
	queue *store.Queue
	admin *inspect.Admin
}

// New returns the jobs of a queue.
func New(queue *store.Queue) *Jobs { return &Jobs{queue, inspect.NewAdmin(queue)} }

// Start stores a job, which the bridges then run. Its errors are [ErrSpec],
// [ErrManyOpen] and those of Redis; if an answer was lost, the job may have been
// started, see [Jobs.List].
func (j *Jobs) Start(ctx context.Context, spec Spec) (id string, err error) {
	now, err := j.queue.Clock(ctx)
	if err != nil {
		return "", err
	}
	if err := spec.check(now); err != nil {
		return "", fmt.Errorf("%w: %w", ErrSpec, err)
	}
	if err := j.Prune(ctx); err != nil {
		return "", err
	}
	id = ulid.MustNew(ulid.Now(), rand.Reader).String()
	text, err := json.Marshal(record{Job: Job{ID: id, Spec: spec, State: Waiting, StartedAt: now}, Mark: store.NewTokens(1)[0][:markLength]})
	if err != nil {
		return "", err
	}
	cmd, err := j.queue.Run(ctx, scripts.JobStart, []string{j.queue.Keys().Jobs()}, id, text, mostOpen)
	if err != nil {
		return "", fmt.Errorf("start job: %w", err)
	}
	if n, err := cmd.Int(); err != nil || n == 0 {
		return "", errors.Join(err, ErrManyOpen)
	}
	// Only a hint, from Redis 7.0 on: the bridges also poll.
	_ = j.queue.Redis(ctx).SPublish(ctx, j.queue.Keys().Instances(), "job").Err()
	return id, nil
}

// Get returns a job, or [ErrNone].
func (j *Jobs) Get(ctx context.Context, id string) (Job, error) {
	jobs, err := j.read(ctx, []string{id})
	if err == nil && len(jobs) == 0 {
		err = ErrNone
	}
	if err != nil {
		return Job{}, err
	}
	return jobs[0], nil
}

// List returns the jobs after the cursor, newest first, and the cursor of the next
// page, which is empty on the last one.
func (j *Jobs) List(ctx context.Context, cursor string) (jobs []Job, next string, err error) {
	ids, err := j.ids(ctx)
	if err != nil {
		return nil, "", err
	}
	slices.Reverse(ids)
	ids = slices.DeleteFunc(ids, func(id string) bool { return cursor != "" && id >= cursor })
	if len(ids) > pageSize {
		ids = ids[:pageSize]
		next = ids[pageSize-1]
	}
	jobs, err = j.read(ctx, ids)
	return jobs, next, err
}

// Stop asks the job to stop, which it does after its current step.
func (j *Jobs) Stop(ctx context.Context, id string) error {
	job, err := j.Get(ctx, id)
	if err != nil || job.State.Ended() {
		return err
	}
	if err := j.queue.Redis(ctx).HSet(ctx, j.queue.Keys().Jobs(), id+stopField, "1").Err(); err != nil {
		return fmt.Errorf("stop job: %w", err)
	}
	return nil
}

// Ready returns the ids of the open jobs that may run, in the order in which they were started. A reschedule
// waits until all earlier ones that may mean the same messages have ended, unless it is told to stop: see doc.go. Since later jobs come
// last, what is ready stays so.
func (j *Jobs) Ready(ctx context.Context) ([]string, error) {
	open, err := j.Open(ctx)
	if err != nil || len(open) < 2 {
		return open, err
	}
	jobs, err := j.read(ctx, open)
	if err != nil {
		return nil, err
	}
	var ready, waiting []string
	for i := range jobs {
		if waitsForOneOf(&jobs[i].Spec, jobs[:i]) {
			waiting = append(waiting, jobs[i].ID)
		} else {
			ready = append(ready, jobs[i].ID)
		}
	}
	stopped, err := j.stopped(ctx, waiting)
	return append(ready, stopped...), err
}

func waitsForOneOf(s *Spec, earlier []Job) bool {
	return slices.ContainsFunc(earlier, func(e Job) bool { return s.movesWhatMoves(&e.Spec) })
}

// stopped returns those of the jobs that are told to stop.
func (j *Jobs) stopped(ctx context.Context, ids []string) (stopped []string, err error) {
	for _, id := range ids {
		isTold, err := j.queue.Redis(ctx).HExists(ctx, j.queue.Keys().Jobs(), id+stopField).Result()
		if err != nil {
			return nil, fmt.Errorf("read stops of jobs: %w", err)
		}
		if isTold {
			stopped = append(stopped, id)
		}
	}
	return stopped, nil
}

// Open returns the ids of the jobs that have not ended, in the order in which they were started.
func (j *Jobs) Open(ctx context.Context) ([]string, error) {
	open, err := j.queue.Redis(ctx).HGet(ctx, j.queue.Keys().Jobs(), openField).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read open jobs: %w", err)
	}
	return strings.Fields(open), nil
}

// ids returns the ids of all jobs, oldest first.
func (j *Jobs) ids(ctx context.Context) ([]string, error) {
	fields, err := j.queue.Redis(ctx).HKeys(ctx, j.queue.Keys().Jobs()).Result()
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	slices.Sort(fields)
	return slices.DeleteFunc(fields, func(field string) bool { return len(field) != ulid.EncodedSize }), nil
}

func (j *Jobs) read(ctx context.Context, ids []string) ([]Job, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	texts, err := j.queue.Redis(ctx).HMGet(ctx, j.queue.Keys().Jobs(), ids...).Result()
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	jobs := make([]Job, 0, len(ids))
	for i, text := range texts {
		s, ok := text.(string)
		if !ok {
			continue
		}
		job := Job{}
		if err := json.Unmarshal([]byte(s), &job); err != nil {
			job = Job{ID: ids[i], State: Failed, Err: "its record cannot be read: " + err.Error()}
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// Prune deletes jobs that ended seven days ago, and the oldest if there are
// more than a thousand.
func (j *Jobs) Prune(ctx context.Context) error {
	ids, err := j.ids(ctx)
	if err != nil || len(ids) == 0 {
		return err
	}
	open, err := j.Open(ctx)
	if err != nil {
		return err
	}
	cut := j.queue.Now().Add(-kept)
	var old []string
	for i, id := range ids {
		made, err := ulid.Parse(id)
		switch {
		case err != nil, slices.Contains(open, id):
		case len(ids)-i >= mostKept:
			old = append(old, id, id+stopField)
		case ulid.Time(made.Time()).Before(cut):
			if job, err := j.Get(ctx, id); err == nil && job.EndedAt.Before(cut) {
				old = append(old, id, id+stopField)
			}
		}
	}
	if len(old) == 0 {
		return nil
	}
	if err := j.queue.Redis(ctx).HDel(ctx, j.queue.Keys().Jobs(), old...).Err(); err != nil {
		return fmt.Errorf("forget jobs: %w", err)
	}
	return nil
}
