package nats

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	natsgo "github.com/nats-io/nats.go"
)

var deniedSubject = regexp.MustCompile(`(?:Publish|Subscription) to "([^"]*)"`)

// deniedLogged bounds the subjects that are remembered as logged.
const deniedLogged = 100

// denials are what the server does not permit us.
type denials struct {
	api atomic.Bool // to ask JetStream's API

	mu     sync.Mutex
	logged map[string]bool // subjects
}

func newDenials() denials { return denials{logged: map[string]bool{}} }

// isNew says whether the subject should be logged.
func (d *denials) isNew(subject string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
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
	case strings.HasPrefix(subject, c.acks.prefix):
		c.abort(err) // without acks nothing can work
	case strings.HasPrefix(subject, "$JS.API."):
		c.denied.api.Store(true)
	}
	for _, f := range c.acks.all() {
		f.deny(subject, err)
	}
	if c.denied.isNew(subject) {
		c.logger.Warn("NATS denies us a subject", "event", "sink_denied", "topic", subject)
	}
}
