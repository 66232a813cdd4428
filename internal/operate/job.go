package operate

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
)

// Job is how far a job is. Matched is the sum of the counts, and of the messages that
// it is just about, but for one that only counts.
type Job struct {
	Job            string `json:"job"`
	Queue          string `json:"queue"`
	Verb           string `json:"verb" enum:"cancel,reschedule,redrive,purge"`
	Filter         Filter `json:"filter"`
	DryRun         bool   `json:"dry_run" doc:"The job only counts."`
	State          string `json:"state" enum:"waiting,running,done,stopped,failed"`
	Matched        int64  `json:"matched"`
	Done           int64  `json:"done"`
	TooLate        int64  `json:"too_late" doc:"They were in flight whenever the job came to them."`
	MaybePublished int64  `json:"maybe_published" doc:"Done, but a copy may have been published before."`
	Gone           int64  `json:"gone" doc:"Published, or changed by others, after they were matched."`
	Failed         int64  `json:"failed" doc:"They cannot be read, or their result is unknown."`
	Remaining      *int64 `json:"remaining,omitempty" doc:"How many of the matched still match at the end of the job, in flight or failed; absent if that is not known."`
	StartedAt      string `json:"started_at" format:"date-time"`
	EndedAt        string `json:"ended_at,omitempty" format:"date-time"`
	Error          string `json:"error,omitempty" doc:"Why it has failed."`
}

// ViewJob is a job as programs see it.
func ViewJob(queue string, j *job.Job) Job {
	return Job{
		Job: j.ID, Queue: queue, Verb: string(j.Spec.Verb), Filter: viewFilter(&j.Spec.Filter), DryRun: j.Spec.DryRun, State: string(j.State),
		Matched: j.Tally.Matched, Done: j.Tally.Done, TooLate: j.Tally.TooLate, MaybePublished: j.Tally.MaybePublished,
		Gone: j.Tally.Gone, Failed: j.Tally.Failed + j.Tally.Unknown, Remaining: j.Remaining,
		StartedAt: Stamp(j.StartedAt), EndedAt: Stamp(j.EndedAt), Error: j.Err,
	}
}

// StartJob starts a job, and returns its id and what the audit has of it.
func (q *Queue) StartJob(ctx context.Context, spec job.Spec) (id string, made inspect.Change, err error) {
	made = inspect.Change{Action: "job " + string(spec.Verb), What: FilterText(&spec.Filter)}
	if spec.DryRun {
		made.Action += ", count only"
	}
	if id, err = q.Jobs().Start(ctx, spec); err == nil {
		made.Answer = "job " + id
	}
	return id, made, err
}
