package main

import (
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

type jobsCommands struct {
	List jobsListCommand `cmd:"" help:"List jobs, the newest first."`
	Show jobsShowCommand `cmd:"" help:"Show a job."`
	Stop jobsStopCommand `cmd:"" help:"Stop a job; what it has done stays."`
}

// jobFlags name a job.
type jobFlags struct {
	queueFlags
	Job string `arg:"" help:"The job's id."`
}

type jobsListCommand struct{ queueFlags }

func (c jobsListCommand) Run(p *program) error {
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	list := c.listing(p.stdout, "JOB", "VERB", "STATE", "STARTED", "MESSAGES", "+ENDED", "+INSTANCE", "+REASON")
	for cursor := ""; ; {
		jobs, next, err := s.queue.Jobs().List(s.ctx, cursor)
		if err != nil {
			return s.fail("list jobs of", "", err)
		}
		s.answered()
		for i := range jobs {
			job := &jobs[i]
			if err := list.row(func() any { return s.jobView(job) }, job.ID, job.Spec.Verb, job.State, formatTime(job.StartedAt),
				tallyOf(job), dash(job.EndedAt), message.InstanceName(job.Instance), job.Err); err != nil {
				return err
			}
		}
		if cursor = next; next == "" {
			return list.end(nil, "no jobs in queue %s", s.name)
		}
	}
}

type jobsShowCommand struct{ jobFlags }

func (c jobsShowCommand) Run(p *program) error {
	return c.look(p, func(s *session, job *store.Job) error { return s.showJob(job) })
}

type jobsStopCommand struct{ jobFlags }

func (jobsStopCommand) Help() string {
	return `The job stops after the messages that it is just about. Exit code 3: it has ended already.`
}

func (c jobsStopCommand) Run(p *program) error {
	return c.look(p, func(s *session, job *store.Job) error {
		if job.State.Ended() {
			return &failure{code: "job_ended", exit: exitRefused, id: job.ID, text: fmt.Sprintf("job %s has ended: %s", job.ID, job.State)}
		}
		err := s.audited(&store.Change{Action: "stop job", What: job.ID}, func() error {
			return s.fail("stop a job of", "", s.queue.Jobs().Stop(s.ctx, job.ID))
		})
		if err != nil {
			return err
		}
		if s.asJSON {
			return writeJSON(p.stdout, s.jobView(job))
		}
		_, err = fmt.Fprintf(p.stdout, "asked job %s to stop\n", job.ID)
		return err
	})
}

func (f jobFlags) look(p *program, do func(*session, *store.Job) error) error {
	s, err := f.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	job, err := s.queue.Jobs().Get(s.ctx, f.Job)
	switch {
	case errors.Is(err, store.ErrNoJob):
		return &failure{code: "not_found", exit: exitRefused, id: f.Job, text: fmt.Sprintf("there is no job %q in queue %s: jobs are kept for seven days", f.Job, s.name)}
	case err != nil:
		return s.fail("look for a job of", "", err)
	}
	return do(s, &job)
}

// jobJSON is a job as programs see it.
type jobJSON struct {
	Job   string         `json:"job"`
	Queue string         `json:"queue"`
	Verb  store.JobVerb  `json:"verb"`
	State store.JobState `json:"state"`
	store.Tally
	Remaining *int64  `json:"remaining"`
	DryRun    bool    `json:"dry_run,omitempty"`
	StartedAt *string `json:"started_at"`
	EndedAt   *string `json:"ended_at"`
	Reason    string  `json:"reason,omitempty"`
}

func (s *session) jobView(job *store.Job) jobJSON {
	return jobJSON{
		Job: job.ID, Queue: s.name, Verb: job.Spec.Verb, State: job.State, Tally: job.Tally, Remaining: job.Remaining, DryRun: job.Spec.DryRun,
		StartedAt: stamp(job.StartedAt), EndedAt: stamp(job.EndedAt), Reason: job.Err,
	}
}

// showJob prints a job, and fails with it.
func (s *session) showJob(job *store.Job) (err error) {
	if s.asJSON {
		err = writeJSON(s.program.stdout, s.jobView(job))
	} else {
		_, err = fmt.Fprintf(s.program.stdout, "%s %s, %s\n", job.Spec.Verb, job.State, progressOf(job))
	}
	if err == nil && job.State == store.JobFailed {
		err = &failure{code: "failed", exit: exitFailed, id: job.ID, text: fmt.Sprintf("job %s has failed: %s", job.ID, job.Err)}
	}
	return err
}
