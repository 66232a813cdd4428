package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// jobs has the calls that change all messages of a filter, and report the progress.
type jobs struct{ *core }

func (j *jobs) register() {
	start := func(id string, verb job.Verb, path, summary string) {
		register(j.core, operation{
			id: id, method: http.MethodPost, path: "/queues/{queue}/" + path, roles: operators, status: http.StatusAccepted, summary: summary,
		}, func(ctx context.Context, in *jobInput) (*startedOutput, error) { return j.startJob(ctx, verb, in) })
	}
	start("cancelAll", job.Cancel, "messages:cancel", "Cancel all messages that match, as a job")
	start("rescheduleAll", job.Reschedule, "messages:reschedule", "Move all messages that match to another due time, as a job")
	start("redriveAll", job.Redrive, "dead:redrive", "Put back all dead letters that match, due now, as a job")
	start("purgeAll", job.Purge, "dead:purge", "Delete all dead letters that match for good, as a job")
	register(j.core, operation{id: "jobs", method: http.MethodGet, path: "/jobs", roles: viewers, summary: "List the newest jobs of all queues"}, j.listJobs)
	register(j.core, operation{id: "job", method: http.MethodGet, path: "/jobs/{job}", roles: viewers, summary: "Show how far a job is"}, j.showJob)
	register(j.core, operation{
		id: "stopJob", method: http.MethodPost, path: "/jobs/{job}:stop", roles: operators,
		summary: "Stop a job; what is done stays done",
	}, j.stopJob)
}

type jobInput struct {
	QueueParam

	Body struct {
		Filter operate.Filter `json:"filter" doc:"Selects the messages; must not be empty."`
		In     string         `json:"in,omitempty" doc:"For a reschedule: the delay from now. One of in, at and by." example:"30m"`
		At     string         `json:"at,omitempty" doc:"For a reschedule: the new due time, RFC 3339."`
		By     string         `json:"by,omitempty" doc:"For a reschedule: moves each message's own due time later or, if negative, earlier." example:"-30m"`
		Rate   int            `json:"rate,omitempty" minimum:"0" doc:"Limit of messages per second; 0 means no limit."`
		DryRun bool           `json:"dry_run,omitempty" doc:"Only count what matches."`
	}
}

// spec is the job for the store; now is Redis' clock.
func (in *jobInput) spec(verb job.Verb, now time.Time) (job.Spec, error) {
	b := &in.Body
	filter, err := b.Filter.Parse()
	spec := job.Spec{Verb: verb, Filter: filter, Rate: b.Rate, DryRun: b.DryRun}
	if err != nil {
		return spec, err
	}
	if filter == (inspect.Filter{}) {
		return spec, invalid("filter", "filter is empty, which would mean all messages: name a state at least")
	}
	if b.By != "" {
		if spec.By, err = config.ParseShift(b.By); err != nil {
			return spec, invalid("by", "by "+err.Error())
		}
	}
	switch {
	case b.In != "" && b.At != "":
		return spec, invalid("in", "give one of in, at and by")
	case b.In != "":
		d, err := operate.ParseDelay("in", b.In)
		if err != nil {
			return spec, err
		}
		spec.At = now.Add(d)
	case b.At != "":
		spec.At, err = operate.ParseTime("at", b.At)
	}
	return spec, err
}

// JobReference names a job that was started.
type JobReference struct {
	Job string `json:"job"`
}

type startedOutput struct {
	Location string `header:"Location" doc:"The job, with its progress."`
	Body     JobReference
}

func (j *jobs) startJob(ctx context.Context, verb job.Verb, in *jobInput) (*startedOutput, error) {
	if caller := callOf(ctx); !caller.SeesAllTopics() && !caller.MaySee(in.Body.Filter.Topic) {
		return nil, forbidden(caller.Name + " may use certain topics only: name one in the filter")
	}
	queue := queuesOf(ctx)[in.Queue]
	now, err := queue.Store.Clock(ctx)
	if err != nil {
		return nil, err
	}
	spec, err := in.spec(verb, now)
	if err != nil {
		return nil, err
	}
	id, made, err := queue.StartJob(ctx, spec)
	j.audited(ctx, in.Queue, made, err)
	if err != nil {
		return nil, err
	}
	return &startedOutput{base + "/jobs/" + id, JobReference{id}}, nil
}

type jobsOutput struct {
	Body struct {
		Jobs []operate.Job `json:"jobs" nullable:"false"`
	}
}

func (j *jobs) listJobs(ctx context.Context, _ *struct{}) (*jobsOutput, error) {
	out := &jobsOutput{}
	out.Body.Jobs = []operate.Job{}
	for _, queue := range j.names(ctx) {
		list, _, err := queuesOf(ctx)[queue].Jobs().List(ctx, "")
		if err != nil {
			return nil, err
		}
		for i := range list {
			if maySeeJob(ctx, &list[i]) {
				out.Body.Jobs = append(out.Body.Jobs, operate.ViewJob(queue, &list[i]))
			}
		}
	}
	slices.SortStableFunc(out.Body.Jobs, func(x, y operate.Job) int { return strings.Compare(y.Job, x.Job) }) // Ids begin with the time.
	return out, nil
}

func maySeeJob(ctx context.Context, j *job.Job) bool {
	caller := callOf(ctx)
	return caller.SeesAllTopics() || caller.MaySee(j.Spec.Filter.Topic)
}

type jobParam struct {
	Job string `path:"job" doc:"The job's id."`
}

type jobOutput struct{ Body operate.Job }

// findJob looks for a job in all queues that the caller may use.
func (j *jobs) findJob(ctx context.Context, id string) (queue string, found job.Job, err error) {
	for _, queue := range j.names(ctx) {
		found, err := queuesOf(ctx)[queue].Jobs().Get(ctx, id)
		if errors.Is(err, job.ErrNone) || err == nil && !maySeeJob(ctx, &found) {
			continue
		}
		return queue, found, err
	}
	return "", found, job.ErrNone
}

func (j *jobs) showJob(ctx context.Context, in *jobParam) (*jobOutput, error) {
	queue, found, err := j.findJob(ctx, in.Job)
	if err != nil {
		return nil, err
	}
	return &jobOutput{operate.ViewJob(queue, &found)}, nil
}

func (j *jobs) stopJob(ctx context.Context, in *jobParam) (*jobOutput, error) {
	queue, found, err := j.findJob(ctx, in.Job)
	if err != nil {
		return nil, err
	}
	door := queuesOf(ctx)[queue].Jobs()
	err = door.Stop(ctx, in.Job)
	j.audited(ctx, queue, inspect.Change{Action: "stop job", What: in.Job}, err)
	if err != nil {
		return nil, err
	}
	if found, err = door.Get(ctx, in.Job); err != nil {
		return nil, err
	}
	return &jobOutput{operate.ViewJob(queue, &found)}, nil
}
