package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store/scripts"
)

// Limits of what is kept of jobs.
const (
	mostOpenJobs  = 100
	mostJobs      = 1000
	jobKept       = 7 * 24 * time.Hour // after its end
	jobLife       = 7 * 24 * time.Hour // after its start
	jobsPage      = 50
	mostJobsDelta = message.MaxDelayYears * 366 * 24 * time.Hour
	openJobs      = "open" // the field of the ids of jobs that have not ended
	stopField     = " stop"
)

// Errors of jobs.
var (
	// ErrJobSpec is returned for a job that cannot be meant; the error says why.
	ErrJobSpec = errors.New("invalid job")
	// ErrJobsOpen is returned where too many jobs have not ended yet.
	ErrJobsOpen = fmt.Errorf("%d jobs have not ended yet", mostOpenJobs)
	// ErrNoJob is returned where there is no such job, or not any more.
	ErrNoJob = errors.New("no such job")
)

// JobVerb is what a job does with each message.
type JobVerb string

// The verbs of jobs.
const (
	JobCancel     JobVerb = "cancel"
	JobReschedule JobVerb = "reschedule"
	JobRedrive    JobVerb = "redrive"
	JobPurge      JobVerb = "purge"
)

// JobSpec says what a job is to do.
type JobSpec struct {
	Verb JobVerb `json:"verb"`
	// Filter says with which messages; it must not be empty. Of these, with those that
	// were there when the job was started. Redrive and purge mean dead letters only.
	Filter Filter `json:"filter"`
	// At or By is for a reschedule: the new due time, or how far from its own one, at
	// most 10 years.
	At time.Time     `json:"at"`
	By time.Duration `json:"by,omitempty"`
	// Rate is how many messages a second at the most; 0: as many as can be.
	Rate int `json:"rate,omitempty"`
	// DryRun only counts.
	DryRun bool `json:"dry_run,omitempty"`
}

// JobState is how far a job is.
type JobState string

// The states of a job.
const (
	JobWaiting JobState = "waiting" // for a bridge
	JobRunning JobState = "running"
	JobDone    JobState = "done"
	JobStopped JobState = "stopped"
	JobFailed  JobState = "failed"
)

// Tally is what became of the messages of a job: Matched is the sum of the others,
// and of those that it is just about, but for a dry run.
type Tally struct {
	Matched int64 `json:"matched"`
	// Done, and MaybePublished: done, but a copy may have been published before.
	Done           int64 `json:"done"`
	MaybePublished int64 `json:"maybe_published"`
	// TooLate were in flight.
	TooLate int64 `json:"too_late"`
	// Gone were published, or changed by others, after they were matched.
	Gone int64 `json:"gone"`
	// Failed cannot be read, and so not put back.
	Failed int64 `json:"failed"`
	// Unknown: the bridge that did it died, or Redis was away, for a minute.
	Unknown int64 `json:"unknown"`
}

// Job is a job as it is now.
type Job struct {
	ID    string   `json:"id"`
	Spec  JobSpec  `json:"spec"`
	State JobState `json:"state"`
	Tally Tally    `json:"tally"`
	// Place is where the last matched messages were, and when they were due.
	Place JobPlace `json:"place"`
	// StartedAt and EndedAt are by Redis' clock.
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	// Instance is the bridge that runs it, or did.
	Instance string `json:"instance,omitempty"`
	// Err is why it has failed.
	Err string `json:"err,omitempty"`
}

// JobPlace is how far a job has got.
type JobPlace struct {
	State State     `json:"state,omitempty"`
	DueAt time.Time `json:"due_at"`
	ID    string    `json:"id,omitempty"`
}

// Ended reports whether nothing more will happen.
func (s JobState) Ended() bool { return s != JobWaiting && s != JobRunning }

// StartJob writes down a job, which the bridges then run. Its errors are [ErrJobSpec],
// [ErrJobsOpen] and those of Redis; where an answer was lost the job may have been
// started, see [Admin.Jobs].
func (q *Admin) StartJob(ctx context.Context, spec JobSpec) (id string, err error) {
	now, err := q.Clock(ctx)
	if err != nil {
		return "", err
	}
	if err := spec.check(now); err != nil {
		return "", fmt.Errorf("%w: %w", ErrJobSpec, err)
	}
	if err := q.PruneJobs(ctx); err != nil {
		return "", err
	}
	id = ulid.Make().String()
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

func (s *JobSpec) check(now time.Time) error {
	if s.Filter == (Filter{}) {
		return errors.New("an empty filter means all messages: name a state at least")
	}
	if s.Verb == JobRedrive || s.Verb == JobPurge {
		if s.Filter.State != "" && s.Filter.State != StateDead {
			return fmt.Errorf("state %q: %s is for dead letters", s.Filter.State, s.Verb)
		}
		s.Filter.State = StateDead
	}
	moves := !s.At.IsZero() || s.By != 0
	switch list := (&ListRequest{Filter: s.Filter, Limit: 1}); {
	case !slices.Contains([]JobVerb{JobCancel, JobReschedule, JobRedrive, JobPurge}, s.Verb):
		return fmt.Errorf("verb %q: must be cancel, reschedule, redrive or purge", s.Verb)
	case s.Rate < 0:
		return fmt.Errorf("rate %d: must be 0 or more", s.Rate)
	case moves != (s.Verb == JobReschedule) || !s.At.IsZero() && s.By != 0:
		return errors.New("a reschedule, and nothing else, has either at or by")
	case s.By.Abs() > mostJobsDelta || s.By%time.Millisecond != 0:
		return fmt.Errorf("by %v: must be whole milliseconds, at most %d years", s.By, message.MaxDelayYears)
	case !s.At.IsZero() && (s.At.Before(time.UnixMilli(0)) || s.At.After(now.Add(mostJobsDelta))):
		return fmt.Errorf("at %s: from 1970 to %d years from now", s.At.Format(time.RFC3339), message.MaxDelayYears)
	default:
		_, err := list.check()
		return err
	}
}

// Job is one job; [ErrNoJob] where there is none.
func (q *Admin) Job(ctx context.Context, id string) (Job, error) {
	jobs, err := q.readJobs(ctx, []string{id})
	if err == nil && len(jobs) == 0 {
		err = ErrNoJob
	}
	if err != nil {
		return Job{}, err
	}
	return jobs[0], nil
}

// Jobs are the jobs behind the cursor, the newest first, and the cursor of those that
// follow: empty where none do.
func (q *Admin) Jobs(ctx context.Context, cursor string) (jobs []Job, next string, err error) {
	ids, err := q.jobIDs(ctx)
	if err != nil {
		return nil, "", err
	}
	slices.Reverse(ids)
	ids = slices.DeleteFunc(ids, func(id string) bool { return cursor != "" && id >= cursor })
	if len(ids) > jobsPage {
		ids = ids[:jobsPage]
		next = ids[jobsPage-1]
	}
	jobs, err = q.readJobs(ctx, ids)
	return jobs, next, err
}

// StopJob asks the job to stop, which it does after the messages that it is just about.
func (q *Admin) StopJob(ctx context.Context, id string) error {
	job, err := q.Job(ctx, id)
	if err != nil || job.State.Ended() {
		return err
	}
	if err := q.jobs(ctx).HSet(ctx, q.keys.Jobs(), id+stopField, "1").Err(); err != nil {
		return fmt.Errorf("stop job: %w", err)
	}
	return nil
}

// OpenJobs are the ids of the jobs that have not ended.
func (q *Admin) OpenJobs(ctx context.Context) ([]string, error) {
	open, err := q.jobs(ctx).HGet(ctx, q.keys.Jobs(), openJobs).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read open jobs: %w", err)
	}
	return strings.Fields(open), nil
}

func (q *Admin) jobs(ctx context.Context) redis.UniversalClient { return q.conn.Client(ctx) }

// jobIDs are those of all jobs, the oldest first.
func (q *Admin) jobIDs(ctx context.Context) ([]string, error) {
	fields, err := q.jobs(ctx).HKeys(ctx, q.keys.Jobs()).Result()
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	slices.Sort(fields)
	return slices.DeleteFunc(fields, func(field string) bool { return len(field) != ulid.EncodedSize }), nil
}

func (q *Admin) readJobs(ctx context.Context, ids []string) ([]Job, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	texts, err := q.jobs(ctx).HMGet(ctx, q.keys.Jobs(), ids...).Result()
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

// PruneJobs forgets jobs that ended seven days ago, and the oldest where there are
// more than a thousand.
func (q *Admin) PruneJobs(ctx context.Context) error {
	ids, err := q.jobIDs(ctx)
	if err != nil || len(ids) == 0 {
		return err
	}
	open, err := q.OpenJobs(ctx)
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
			if job, err := q.Job(ctx, id); err == nil && job.EndedAt.Before(cut) {
				old = append(old, id, id+stopField)
			}
		}
	}
	if len(old) == 0 {
		return nil
	}
	if err := q.jobs(ctx).HDel(ctx, q.keys.Jobs(), old...).Err(); err != nil {
		return fmt.Errorf("forget jobs: %w", err)
	}
	return nil
}
