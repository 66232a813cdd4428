// Package rediserr classifies the errors of commands: whether the command ran,
// and why it failed.
package rediserr

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// transient are the codes of Redis' errors that prove that a script did not run
// and may run later: the caller repeats the same run.
var transient = []string{
	"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "READONLY", "LOADING", "BUSY", "NOSCRIPT", "MASTERDOWN",
	"NOREPLICAS", "MISCONF", "OOM",
}

// Class says what an error means for a run of a script.
type Class int

// The classes.
const (
	// Lost: it may have run, may still run, or neither.
	Lost Class = iota
	// NotRun: it certainly did not run; the same run may be repeated.
	NotRun
	// Full: it did not run for lack of memory.
	Full
	// Fatal: it did not run, or failed, and will fail again: a denied
	// login, a broken script.
	Fatal
)

// Errors of what comes before a command is sent.
var (
	// ErrNoNode marks errors of finding the node of a Cluster: nothing was sent.
	ErrNoNode = errors.New("no node")
	// ErrNotSent marks errors of what comes before a run: the run was not sent.
	ErrNotSent = errors.New("not sent")
)

// beforeSent are the prefixes of errors that have no type or value in go-redis, and
// that it returns only before it sends a command: no sentinel knows the primary
// (whatever the cause, which is wrapped), and the handshake of a new connection failed.
var beforeSent = []string{
	"redis: all sentinels specified in configuration are unreachable",
	"redis: no sentinels configured",
	"redis: cluster has no nodes",
	"failed to initialize connection options",
}

func wasSent(err error) bool {
	certificate := new(tls.CertificateVerificationError)
	if errors.Is(err, ErrNoNode) || errors.Is(err, ErrNotSent) || errors.As(err, &certificate) {
		return false
	}
	for ; err != nil; err = errors.Unwrap(err) {
		for _, begin := range beforeSent {
			if strings.HasPrefix(err.Error(), begin) {
				return false
			}
		}
	}
	return true
}

// Classify returns the class of err.
func Classify(err error) Class {
	network := new(net.OpError)
	switch {
	case redis.IsAuthError(err), redis.IsPermissionError(err):
		return Fatal // In the handshake, too.
	case !wasSent(err):
		return NotRun
	case errors.As(err, &network):
		if network.Op == "dial" {
			return NotRun
		}
		return Lost
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return NotRun // go-redis looks at ctx only before it sends.
	}
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return NotRun
	}
	if errors.Is(err, redis.ErrClosed) {
		return Fatal
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return Lost
	}
	code := ReplyCode(reply.Error())
	if code == "OOM" {
		return Full
	}
	if redis.IsMaxClientsError(err) {
		return NotRun // Its code is ERR, like that of a script's errors.
	}
	if slices.Contains(transient, code) {
		return NotRun
	}
	return Fatal
}

// Cause says why a call to Redis failed: what Redis or the network said, without
// a login, and without what differs from one try to the next (the local port). A
// timeout is the cause only if nothing else is known.
func Cause(err error) string {
	var reply redis.Error
	network := new(net.OpError)
	switch {
	case err == nil:
		return ""
	case errors.As(err, &reply):
		return reply.Error()
	case errors.As(err, &network):
		if network.Addr == nil {
			return network.Op + ": " + network.Err.Error()
		}
		return network.Op + " " + network.Addr.String() + ": " + network.Err.Error()
	case IsLateness(err):
		return "no answer in time"
	}
	return err.Error()
}

// IsLateness reports whether the error only says that time ran out.
func IsLateness(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrPoolTimeout)
}

// Telling returns the more telling of two successive errors: the later one,
// unless it says only that time ran out, and the earlier one says why.
func Telling(earlier, later error) error {
	if earlier != nil && IsLateness(later) && !IsLateness(earlier) {
		return earlier
	}
	return later
}

// ReplyCode is the first word of an error reply. Redis before 7.0 wraps the
// reply to a command inside a script, whose code then stands behind a dash.
func ReplyCode(text string) string {
	if strings.HasPrefix(text, "ERR Error running script") {
		if _, inner, found := strings.Cut(text, ": -"); found {
			text = inner
		}
	}
	code, _, _ := strings.Cut(text, " ")
	return code
}
