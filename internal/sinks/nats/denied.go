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

// denials are the permissions that the server denies us. The connection's mu guards all but api.
type denials struct {
	api atomic.Bool // to ask JetStream's API

	open map[string]*denial // by subject: messages of it are denied, and it is not known yet which
	// isBlurred: nobody waits any longer for the answer to some message, so a denial may
	// concern that one.
	isBlurred bool
	logged    map[string]bool // subjects
}

// denial counts how often the server has denied a subject, without the denials already reported.
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

// onError receives errors that belong to no call. This is the only answer to a
// publish without permission.
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

// judgeDenials finds out which messages the server has denied. The server names only
// the subject, once for each message, and permissions change while we are connected: an
// earlier message may be stored, and its ack under way. So the denied messages are
// known when as many are denied as have no answer. It is called after each denial, and
// after each answer while there are denials, with c.mu held.
func (c *connection) judgeDenials() {
	for subject, d := range c.denied.open {
		var unanswered []uint64
		for w := range c.waiting.all() {
			if w.submission.batch[w.index].Topic == subject {
				unanswered = append(unanswered, w.number)
			}
		}
		outcome := classify(d.err)
		if c.denied.isBlurred {
			outcome.Class = sinks.Unknown
		} else if len(unanswered) > d.count {
			continue // Only some of them are denied. Further answers, or timeouts, decide.
		}
		delete(c.denied.open, subject)
		for _, number := range unanswered {
			c.settle(number, outcome)
		}
	}
}
