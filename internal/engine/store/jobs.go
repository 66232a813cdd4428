package store

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

	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Jobs is a queue as those see it who do the same to many of its messages.
type Jobs struct {
	*core

	admin *Admin
}

// Jobs is the door of the jobs.
func (q *Queue) Jobs() *Jobs { return &Jobs{q.core, q.Admin()} }

// Start writes down a job, which the bridges then run. Its errors are [ErrJobSpec],
// [ErrJobsOpen] and those of Redis; where an answer was lost the job may have been
// started, see [Jobs.List].
func (q *Jobs) Start(ctx context.Context, spec JobSpec) (id string, err error) {
	now, err := q.Clock(ctx)
	if err != nil {
		return "", err
	}
	if err := spec.check(now); err != nil {
		return "", fmt.Errorf("%w: %w", ErrJobSpec, err)
	}
	if err := q.Prune(ctx); err != nil {
		return "", err
	}
	id = ulid.MustNew(ulid.Now(), rand.Reader).String()
	text, err := json.Marshal(jobRecord{Job: Job{ID: id, Spec: spec, State: JobWaiting, StartedAt: now}, Mark: newTokens(1)[0][:markLength]})
	if err != nil {
		return "", err
	}
	cmd, err := q.conn.Run(ctx, scripts.JobStart, []string{q.keys.Jobs()}, id, text, mostOpenJobs)
	if err != nil {
		return "", fmt.Errorf("start job: %w", err)
	}
	if n, err := cmd.Int(); err != nil || n == 0 {
		return "", errors.Join(err, ErrJobsOpen)
	}
	return id, nil
}

// Get is one job; [ErrNoJob] where there is none.
func (q *Jobs) Get(ctx context.Context, id string) (Job, error) {
	jobs, err := q.read(ctx, []string{id})
	if err == nil && len(jobs) == 0 {
		err = ErrNoJob
	}
	if err != nil {
		return Job{}, err
	}
	return jobs[0], nil
}

// List is the jobs behind the cursor, the newest first, and the cursor of those that
// follow: empty where none do.
func (q *Jobs) List(ctx context.Context, cursor string) (jobs []Job, next string, err error) {
	ids, err := q.ids(ctx)
	if err != nil {
		return nil, "", err
	}
	slices.Reverse(ids)
	ids = slices.DeleteFunc(ids, func(id string) bool { return cursor != "" && id >= cursor })
	if len(ids) > jobsPage {
		ids = ids[:jobsPage]
		next = ids[jobsPage-1]
	}
	jobs, err = q.read(ctx, ids)
	return jobs, next, err
}

// Stop asks the job to stop, which it does after the messages that it is just about.
func (q *Jobs) Stop(ctx context.Context, id string) error {
	job, err := q.Get(ctx, id)
	if err != nil || job.State.Ended() {
		return err
	}
	if err := q.client(ctx).HSet(ctx, q.keys.Jobs(), id+stopField, "1").Err(); err != nil {
		return fmt.Errorf("stop job: %w", err)
	}
	return nil
}

// Open is the ids of the jobs that have not ended.
func (q *Jobs) Open(ctx context.Context) ([]string, error) {
	open, err := q.client(ctx).HGet(ctx, q.keys.Jobs(), openJobs).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read open jobs: %w", err)
	}
	return strings.Fields(open), nil
}

func (q *Jobs) client(ctx context.Context) redis.UniversalClient { return q.conn.Client(ctx) }

// ids are those of all jobs, the oldest first.
func (q *Jobs) ids(ctx context.Context) ([]string, error) {
	fields, err := q.client(ctx).HKeys(ctx, q.keys.Jobs()).Result()
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	slices.Sort(fields)
	return slices.DeleteFunc(fields, func(field string) bool { return len(field) != ulid.EncodedSize }), nil
}

func (q *Jobs) read(ctx context.Context, ids []string) ([]Job, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	texts, err := q.client(ctx).HMGet(ctx, q.keys.Jobs(), ids...).Result()
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
			job = Job{ID: ids[i], State: JobFailed, Err: "its record cannot be read: " + err.Error()}
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// Prune forgets jobs that ended seven days ago, and the oldest where there are
// more than a thousand.
func (q *Jobs) Prune(ctx context.Context) error {
	ids, err := q.ids(ctx)
	if err != nil || len(ids) == 0 {
		return err
	}
	open, err := q.Open(ctx)
	if err != nil {
		return err
	}
	cut := q.Now().Add(-jobKept)
	var old []string
	for i, id := range ids {
		made, err := ulid.Parse(id)
		switch {
		case err != nil, slices.Contains(open, id):
		case len(ids)-i >= mostJobs:
			old = append(old, id, id+stopField)
		case ulid.Time(made.Time()).Before(cut):
			if job, err := q.Get(ctx, id); err == nil && job.EndedAt.Before(cut) {
				old = append(old, id, id+stopField)
			}
		}
	}
	if len(old) == 0 {
		return nil
	}
	if err := q.client(ctx).HDel(ctx, q.keys.Jobs(), old...).Err(); err != nil {
		return fmt.Errorf("forget jobs: %w", err)
	}
	return nil
}
