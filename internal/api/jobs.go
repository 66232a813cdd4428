package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
)

// jobs has the calls that do the same to all messages of a filter, and tell how far that is.
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

// Filter says which messages are meant, in a query or in a body.
type Filter struct {
	State          string `query:"state" json:"state,omitempty" enum:"scheduled,parked,in_flight,dead" doc:"Where they are."`
	Topic          string `query:"topic" json:"topic,omitempty" doc:"Their topic."`
	Key            string `query:"key" json:"key,omitempty" doc:"Their key."`
	Tag            string `query:"tag" json:"tag,omitempty" doc:"One of their tags. A list of them is in the order of key and id, whatever their state."`
	Reason         string `query:"reason" json:"reason,omitempty" doc:"Why they are dead, to the letter."`
	ReasonContains string `query:"reason_contains" json:"reason_contains,omitempty" doc:"A part of why they are dead."`
	IDPrefix       string `query:"id_prefix" json:"id_prefix,omitempty" doc:"How their ids begin."`
	DueFrom        string `query:"due_from" json:"due_from,omitempty" format:"date-time" doc:"Due then or later, RFC 3339."`
	DueTo          string `query:"due_to" json:"due_to,omitempty" format:"date-time" doc:"Due before then, RFC 3339."`
}

func (f *Filter) parse() (inspect.Filter, error) {
	found := inspect.Filter{
		State: inspect.State(f.State), Topic: f.Topic, Key: f.Key, Tag: f.Tag, IDPrefix: f.IDPrefix, Reason: f.Reason, ReasonContains: f.ReasonContains,
	}
	var err, err2 error
	found.From, err = parseTime("due_from", f.DueFrom)
	found.To, err2 = parseTime("due_to", f.DueTo)
	return found, errors.Join(err, err2)
}

func viewFilter(f *inspect.Filter) Filter {
	return Filter{
		State: string(f.State), Topic: f.Topic, Key: f.Key, Tag: f.Tag, IDPrefix: f.IDPrefix, Reason: f.Reason, ReasonContains: f.ReasonContains,
		DueFrom: stamp(f.From), DueTo: stamp(f.To),
	}
}

type jobInput struct {
	QueueParam

	Body struct {
		Filter Filter `json:"filter" doc:"Which messages; not empty."`
		In     string `json:"in,omitempty" doc:"Of a reschedule: due so long from now. This, at or by." example:"30m"`
		At     string `json:"at,omitempty" doc:"Of a reschedule: due at that instant, RFC 3339."`
		By     string `json:"by,omitempty" doc:"Of a reschedule: each so much later than it is due, or earlier." example:"-30m"`
		Rate   int    `json:"rate,omitempty" minimum:"0" doc:"Messages a second at the most; 0: as many as can be."`
		DryRun bool   `json:"dry_run,omitempty" doc:"Only count what matches."`
	}
}

// spec is the job for the store; now is Redis' clock.
func (in *jobInput) spec(verb job.Verb, now time.Time) (job.Spec, error) {
	b := &in.Body
	filter, err := b.Filter.parse()
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
		d, err := parseDelay("in", b.In)
		if err != nil {
			return spec, err
		}
		spec.At = now.Add(d)
	case b.At != "":
		spec.At, err = parseTime("at", b.At)
	}
	return spec, err
}

// Started names the job.
type Started struct {
	Job string `json:"job"`
}

type startedOutput struct {
	Location string `header:"Location" doc:"Where the job tells how far it is."`
	Body     Started
}

func (j *jobs) startJob(ctx context.Context, verb job.Verb, in *jobInput) (*startedOutput, error) {
	if caller := callOf(ctx); !caller.SeesAllTopics() && !caller.MaySee(in.Body.Filter.Topic) {
		return nil, forbidden(caller.Name + " may use certain topics only: name one in the filter")
	}
	queue := j.config.Queues[in.Queue].Store
	now, err := queue.Clock(ctx)
	if err != nil {
		return nil, err
	}
	spec, err := in.spec(verb, now)
	if err != nil {
		return nil, err
	}
	id, err := job.New(queue).Start(ctx, spec)
	made := change{action: "job " + string(verb), filter: text(in.Body.Filter), answer: "job " + id}
	if spec.DryRun {
		made.action += ", count only"
	}
	if err != nil {
		made.answer = problem(err).Code
	}
	j.audited(ctx, in.Queue, made)
	if err != nil {
		return nil, err
	}
	return &startedOutput{base + "/jobs/" + id, Started{id}}, nil
}

// text is a filter in JSON, for people.
func text(f Filter) string {
	content, err := json.Marshal(f)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// Job is how far a job is. Matched is the sum of the counts, and of the messages that
// it is just about, but for one that only counts.
type Job struct {
	Job            string `json:"job"`
	Queue          string `json:"queue"`
	Verb           string `json:"verb" enum:"cancel,reschedule,redrive,purge"`
	Filter         Filter `json:"filter"`
	DryRun         bool   `json:"dry_run" doc:"It only counts."`
	State          string `json:"state" enum:"waiting,running,done,stopped,failed"`
	Matched        int64  `json:"matched"`
	Done           int64  `json:"done"`
	TooLate        int64  `json:"too_late" doc:"They were in flight whenever the job was about them."`
	MaybePublished int64  `json:"maybe_published" doc:"Done, but a copy may have been published before."`
	Gone           int64  `json:"gone" doc:"Published, or changed by others, after they were matched."`
	Failed         int64  `json:"failed" doc:"They cannot be read, or nobody knows what became of them."`
	Remaining      *int64 `json:"remaining,omitempty" doc:"How many of the matched still match as the job ends, in flight or failed; absent where that is not known."`
	StartedAt      string `json:"started_at" format:"date-time"`
	EndedAt        string `json:"ended_at,omitempty" format:"date-time"`
	Error          string `json:"error,omitempty" doc:"Why it has failed."`
}

func viewJob(queue string, j *job.Job) Job {
	return Job{
		Job: j.ID, Queue: queue, Verb: string(j.Spec.Verb), Filter: viewFilter(&j.Spec.Filter), DryRun: j.Spec.DryRun, State: string(j.State),
		Matched: j.Tally.Matched, Done: j.Tally.Done, TooLate: j.Tally.TooLate, MaybePublished: j.Tally.MaybePublished,
		Gone: j.Tally.Gone, Failed: j.Tally.Failed + j.Tally.Unknown, Remaining: j.Remaining,
		StartedAt: stamp(j.StartedAt), EndedAt: stamp(j.EndedAt), Error: j.Err,
	}
}

type jobsOutput struct {
	Body struct {
		Jobs []Job `json:"jobs" nullable:"false"`
	}
}

func (j *jobs) listJobs(ctx context.Context, _ *struct{}) (*jobsOutput, error) {
	out := &jobsOutput{}
	out.Body.Jobs = []Job{}
	for _, queue := range j.names(ctx) {
		list, _, err := job.New(j.config.Queues[queue].Store).List(ctx, "")
		if err != nil {
			return nil, err
		}
		for i := range list {
			if maySeeJob(ctx, &list[i]) {
				out.Body.Jobs = append(out.Body.Jobs, viewJob(queue, &list[i]))
			}
		}
	}
	slices.SortStableFunc(out.Body.Jobs, func(x, y Job) int { return strings.Compare(y.Job, x.Job) }) // Ids begin with the time.
	return out, nil
}

func maySeeJob(ctx context.Context, j *job.Job) bool {
	caller := callOf(ctx)
	return caller.SeesAllTopics() || caller.MaySee(j.Spec.Filter.Topic)
}

type jobParam struct {
	Job string `path:"job" doc:"The job's id."`
}

type jobOutput struct{ Body Job }

// findJob looks for a job in all queues that the caller may use.
func (j *jobs) findJob(ctx context.Context, id string) (queue string, found job.Job, err error) {
	for _, queue := range j.names(ctx) {
		found, err := job.New(j.config.Queues[queue].Store).Get(ctx, id)
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
	return &jobOutput{viewJob(queue, &found)}, nil
}

func (j *jobs) stopJob(ctx context.Context, in *jobParam) (*jobOutput, error) {
	queue, found, err := j.findJob(ctx, in.Job)
	if err != nil {
		return nil, err
	}
	door := job.New(j.config.Queues[queue].Store)
	err = door.Stop(ctx, in.Job)
	made := change{action: "stop job", id: in.Job, answer: "done"}
	if err != nil {
		made.answer = problem(err).Code
	}
	j.audited(ctx, queue, made)
	if err != nil {
		return nil, err
	}
	if found, err = door.Get(ctx, in.Job); err != nil {
		return nil, err
	}
	return &jobOutput{viewJob(queue, &found)}, nil
}
