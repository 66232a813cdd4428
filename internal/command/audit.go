package command

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// changing connects to the queue and has do change it, as audited tells.
func (f queueFlags) changing(p *program, made inspect.Change, do func(*session, *inspect.Change) error) error {
	s, err := f.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	return s.audited(&made, func() error { return do(s, &made) })
}

// audited has do change the queue, and writes down what came of it, also if that was an
// error. do says as made.Answer what it has done; without that it is "done". What was
// refused for how it was asked for changed nothing, and is not written down.
func (s *session) audited(made *inspect.Change, do func() error) error {
	err := do()
	if made.Answer = answerOf(made.Answer, err); made.Answer != "" {
		writeDown(s.program, s.asJSON, s.Store, made)
	}
	return err
}

// answerOf is what was done and which error ended it; empty if it was refused for how it
// was asked for.
func answerOf(done string, err error) string {
	if err == nil {
		return cmp.Or(done, "done")
	}
	f := explain(err)
	switch {
	case done != "":
		return done + ", " + f.code
	case f.exit == exitUsage:
		return ""
	}
	return f.code
}

// writeDown writes a change into the queue's audit, where those of the API are. Where it
// cannot, the change stays, and a warning says so.
func writeDown(p *program, asJSON bool, queue *store.Queue, made *inspect.Change) {
	made.Who, made.From = operator()
	made.Via = inspect.ViaCommand
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), operate.AuditTimeout)
	defer cancel()
	if err := inspect.NewAdmin(queue).Audit(ctx, made); err != nil {
		warn(p, asJSON, "not_audited", made.What, fmt.Sprintf("%s is not in the audit of queue %s: %v", made.Action, queue.Name(), err))
	}
}

// operator is who runs the command, and on which host, as the operating system has it.
func operator() (name, host string) {
	name = "uid " + strconv.Itoa(os.Getuid())
	if known, err := user.Current(); err == nil && known.Username != "" {
		name = known.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name, host
}
