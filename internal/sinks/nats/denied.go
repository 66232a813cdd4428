package nats

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"

	natsgo "github.com/nats-io/nats.go"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

var deniedSubject = regexp.MustCompile(`(?:Publish|Subscription) to "([^"]*)"`)

// deniedLogged bounds the subjects that are remembered as logged.
const deniedLogged = 100

// denials are what the server does not permit us. But for api, the connection's mu guards them.
type denials struct {
	api atomic.Bool // to ask JetStream's API

	open map[string]*denial // by subject: messages of it are denied, and it is not known yet which
	// isBlurred: of a message that was handed over nobody waits for the answer any more,
	// so that a denial may be of it.
	isBlurred bool
	logged    map[string]bool // subjects
}

// denial is how often the server has denied a subject, but for those that were told.
type denial struct {
	count int
	err   error
}

func newDenials() denials { return denials{logged: map[string]bool{}, open: map[string]*denial{}} }

// isNew says whether the subject should be logged.
func (d *denials) isNew(subject string) bool {
	if d.logged[subject] || len(d.logged) >= deniedLogged {
		return false
	}
	d.logged[subject] = true
	return true
}

// onError hears of errors that belong to no call. The server answers a publish
// that we have no permission for in no other way.
func (c *connection) onError(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
	match := deniedSubject.FindStringSubmatch(fmt.Sprint(err))
	if !errors.Is(err, natsgo.ErrPermissionViolation) || match == nil {
		return
	}
	subject := match[1]
	switch {
	case strings.HasPrefix(subject, c.inbox):
		c.abort(err) // without acks nothing can work
	case strings.HasPrefix(subject, "$JS.API."):
		c.denied.api.Store(true)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.denied.open[subject] == nil {
		c.denied.open[subject] = &denial{}
	}
	c.denied.open[subject].count++
	c.denied.open[subject].err = err
	c.judgeDenials()
	if c.denied.isNew(subject) {
		c.logger.Warn("NATS denies us a subject", "event", "sink_denied", "topic", subject)
	}
}

// judgeDenials tells which messages the server has denied. It names only the subject,
// once for each message, and permissions change while we are connected: an earlier
// message may be stored, and its ack on its way. So they are known when as many are
// denied as have no answer. It is called after each denial, and after each answer while
// there are some, with c.mu held.
func (c *connection) judgeDenials() {
	for subject, d := range c.denied.open {
		var unanswered []uint64
		for number, w := range c.waiting {
			if w.submission.batch[w.index].Topic == subject {
				unanswered = append(unanswered, number)
			}
		}
		outcome := classify(d.err)
		if c.denied.isBlurred {
			outcome.Class = sinks.Unknown
		} else if len(unanswered) > d.count {
			continue // It is some of them. What is answered, or overdue, tells.
		}
		delete(c.denied.open, subject)
		for _, number := range unanswered {
			c.settle(number, outcome)
		}
	}
}
