package command

import (
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/operate"
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
		jobs, next, err := s.Jobs().List(s.ctx, cursor)
		if err != nil {
			return s.fail("list jobs of", "", err)
		}
		s.resetTimer()
		for i := range jobs {
			found := &jobs[i]
			if err := list.row(func() any { return operate.ViewJob(s.Name, found) }, found.ID, found.Spec.Verb, found.State, formatTime(found.StartedAt),
				tallyOf(found), dash(found.EndedAt), message.InstanceName(found.Instance), found.Err); err != nil {
				return err
			}
		}
		if cursor = next; next == "" {
			return list.end(nil, "no jobs in queue %s", s.Name)
		}
	}
}

type jobsShowCommand struct{ jobFlags }

func (c jobsShowCommand) Run(p *program) error {
	return c.look(p, func(s *session, found *job.Job) error { return s.showJob(found) })
}

type jobsStopCommand struct{ jobFlags }

func (jobsStopCommand) Help() string {
	return `The job first finishes the step that is under way. Exit code 3: it has already ended.`
}

func (c jobsStopCommand) Run(p *program) error {
	return c.look(p, func(s *session, found *job.Job) error {
		if found.State.Ended() {
			return &failure{code: "job_ended", exit: exitRefused, id: found.ID, text: fmt.Sprintf("job %s has ended: %s", found.ID, found.State)}
		}
		err := s.audited(&inspect.Change{Action: "stop job", What: found.ID}, func() error {
			return s.fail("stop a job of", "", s.Jobs().Stop(s.ctx, found.ID))
		})
		if err != nil {
			return err
		}
		if s.asJSON {
			return writeJSON(p.stdout, operate.ViewJob(s.Name, found))
		}
		_, err = fmt.Fprintf(p.stdout, "asked job %s to stop\n", found.ID)
		return err
	})
}

func (f jobFlags) look(p *program, do func(*session, *job.Job) error) error {
	s, err := f.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	found, err := s.Jobs().Get(s.ctx, f.Job)
	switch {
	case errors.Is(err, job.ErrNone):
		return &failure{code: "not_found", exit: exitRefused, id: f.Job, text: fmt.Sprintf("there is no job %q in queue %s: jobs are kept for seven days", f.Job, s.Name)}
	case err != nil:
		return s.fail("look for a job of", "", err)
	}
	return do(s, &found)
}

// showJob prints a job, and fails with it.
func (s *session) showJob(found *job.Job) (err error) {
	if s.asJSON {
		err = writeJSON(s.program.stdout, operate.ViewJob(s.Name, found))
	} else {
		_, err = fmt.Fprintf(s.program.stdout, "%s %s, %s\n", found.Spec.Verb, found.State, progressOf(found))
	}
	if err == nil && found.State == job.Failed {
		err = &failure{code: "failed", exit: exitFailed, id: found.ID, text: fmt.Sprintf("job %s has failed: %s", found.ID, found.Err)}
	}
	return err
}
