package command

import (
	"fmt"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const (
	// jobEvery is the interval between reads of a job's progress, jobSaid the interval between lines about
	// it.
	jobEvery = 200 * time.Millisecond
	jobSaid  = 5 * time.Second
)

// bulkFlags say which messages a verb is for, and how they are gone through.
type bulkFlags struct {
	All bool `help:"All messages that the flags describe. The bridges do it, even after this command has ended."`
	narrowFlags
	DryRun bool      `help:"With --all: only count them."`
	Rate   perSecond `placeholder:"N/s" help:"With --all: the most messages per second."`
	Wait   bool      `default:"true" negatable:"" help:"With --all: wait until it is done, and report progress."`
}

// isUsed reports whether any flag but --all is given.
func (f bulkFlags) isUsed() bool { return f.narrow() != (inspect.Filter{}) || f.DryRun || f.Rate > 0 }

// start has the bridges do it, and waits until they have.
func (f bulkFlags) start(p *program, queue queueFlags, spec job.Spec, due ...dueFlags) error {
	s, err := queue.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	for _, d := range due {
		if d.At != nil || d.In != nil {
			now, err := s.Store.Clock(s.ctx)
			if err != nil {
				return s.fail("read the clock of", "", err)
			}
			spec.At = d.from(now)
		}
	}
	spec.DryRun, spec.Rate = f.DryRun, int(f.Rate)
	id, err := s.startJob(spec)
	switch {
	case err != nil:
		return err
	case f.Wait:
		return s.followJob(id)
	}
	found, err := s.Jobs().Get(s.ctx, id)
	if err != nil {
		return s.fail("look for the job of", "", err)
	}
	return s.showJob(&found)
}

// startJob starts a job. The audit has the start as the change; the job itself reports what it does.
func (s *session) startJob(spec job.Spec) (id string, err error) {
	var made inspect.Change
	err = s.audited(&made, func() (err error) {
		id, made, err = s.StartJob(s.ctx, spec)
		return s.fail("start a job for", "", err)
	})
	return id, err
}

// followJob waits until the job has ended, and says how far it is. When the command is
// interrupted the job continues.
func (s *session) followJob(id string) error {
	said := time.Now()
	for {
		s.resetTimer()
		found, err := s.Jobs().Get(s.ctx, id)
		switch {
		case s.program.ctx.Err() != nil:
			_, err := fmt.Fprintf(s.program.stderr, "bridge: job %s goes on: `bridge jobs show %s` tells how far it is, `bridge jobs stop %s` stops it\n", id, id, id)
			return err
		case err != nil:
			return s.fail("look for job "+id+" of", "", err)
		case found.State.Ended():
			return s.showJob(&found)
		}
		if time.Since(said) > jobSaid {
			said = time.Now()
			_, _ = fmt.Fprintln(s.program.stderr, "bridge: "+progressOf(&found)) // There is nowhere to report it.
		}
		wait.Sleep(s.program.ctx, jobEvery)
	}
}

// progressOf says how far a job is.
func progressOf(found *job.Job) string {
	if found.State == job.Waiting {
		return fmt.Sprintf("job %s waits for a bridge of the queue to run it", found.ID)
	}
	text := fmt.Sprintf("job %s: %s", found.ID, tallyOf(found))
	if found.Place.ID != "" && !found.State.Ended() {
		text += fmt.Sprintf("; now at %s, %s, due %s", found.Place.ID, found.Place.State, formatTime(found.Place.DueAt))
	}
	return text
}

// tallyOf formats the tally of a job.
func tallyOf(found *job.Job) string {
	t := &found.Tally
	if found.Spec.DryRun {
		return fmt.Sprintf("%d matched, nothing was changed", t.Matched)
	}
	parts := []string{fmt.Sprintf("%d matched, %d done", t.Matched, t.Done+t.MaybePublished)}
	for _, part := range []struct {
		n    int64
		what string
	}{
		{t.MaybePublished, "of them maybe published before"},
		{t.TooLate, "too late"},
		{t.Gone, "gone or changed meanwhile"},
		{t.Failed, "cannot be read"},
		{t.Unknown, "unknown"},
	} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	if found.Remaining != nil && *found.Remaining > 0 {
		parts = append(parts, fmt.Sprintf("%d still match", *found.Remaining))
	}
	return strings.Join(parts, ", ")
}
