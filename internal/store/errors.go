package store

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// States that a producer may want to tell apart. The SDK exports them as its own.
var (
	// ErrUnavailable is returned when Redis was not reached: nothing was sent.
	ErrUnavailable = errors.New("delay: redis unavailable")
	// ErrUnknown is returned when it cannot be told whether the call took effect.
	ErrUnknown = errors.New("delay: outcome unknown")
	// ErrFull is returned when Redis has reached its memory limit; nothing was stored.
	ErrFull = errors.New("delay: redis is full")
	// ErrNoLayout is returned for a queue that no bridge and no command has made yet.
	ErrNoLayout = errors.New("delay: queue has no layout")
	// ErrNotDurable is returned when the call took effect, but what was asked, replicas or the disk, has not confirmed it.
	ErrNotDurable = errors.New("delay: done, but not confirmed as durable")
	// ErrNoFsync is returned where Redis cannot confirm that a call is on its disk; nothing was written.
	ErrNoFsync = errors.New("redis cannot confirm what is on its disk")
)

// transient are the codes of Redis' errors that prove that a script did not run
// and may run later: the caller repeats the same run.
var transient = []string{
	"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "READONLY", "LOADING", "BUSY", "NOSCRIPT", "MASTERDOWN",
	"NOREPLICAS", "MISCONF", "OOM",
}

// errorClass says what an error tells about a run of a script.
type errorClass int

const (
	// classLost: it may have run, may run yet, or not.
	classLost errorClass = iota
	// classNotRun: it did certainly not run; the same run may be repeated.
	classNotRun
	// classFull: it did not run for lack of memory.
	classFull
	// classFatal: it did not run, or failed, and will fail again: a denied
	// login, a broken script.
	classFatal
)

var (
	// errNoNode marks errors of finding the node of a Cluster: nothing was sent.
	errNoNode = errors.New("no node")
	// errNotSent marks errors of what comes before a run: the run was not sent.
	errNotSent = errors.New("not sent")
)

// beforeSent are how errors begin that go-redis has no type or value for, but
// makes only before it sends a command: no sentinel knows the primary (whatever
// the cause, which is wrapped), and the handshake of a new connection failed.
var beforeSent = []string{
	"redis: all sentinels specified in configuration are unreachable",
	"redis: no sentinels configured",
	"redis: cluster has no nodes",
	"failed to initialize connection options",
}

func wasSent(err error) bool {
	certificate := new(tls.CertificateVerificationError)
	if errors.Is(err, errNoNode) || errors.Is(err, errNotSent) || errors.As(err, &certificate) {
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

func classify(err error) errorClass {
	network := new(net.OpError)
	switch {
	case redis.IsAuthError(err), redis.IsPermissionError(err):
		return classFatal // In the handshake, too.
	case !wasSent(err):
		return classNotRun
	case errors.As(err, &network):
		if network.Op == "dial" {
			return classNotRun
		}
		return classLost
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return classNotRun // go-redis looks at ctx only before it sends.
	}
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return classNotRun
	}
	if errors.Is(err, redis.ErrClosed) {
		return classFatal
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return classLost
	}
	code := replyCode(reply.Error())
	if code == "OOM" {
		return classFull
	}
	if redis.IsMaxClientsError(err) {
		return classNotRun // Its code is ERR, as that of errors of a script.
	}
	if slices.Contains(transient, code) {
		return classNotRun
	}
	return classFatal
}

// Cause says why a call to Redis failed: what Redis or the network said, without
// a login, and without what differs from one try to the next (the local port).
// That time ran out is the cause only where nothing else is known.
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
	case isLateness(err):
		return "no answer in time"
	}
	return err.Error()
}

// isLateness reports whether the error says no more than that time ran out.
func isLateness(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrPoolTimeout)
}

// tellingCause is which of two errors in a row is told at the end: the later one,
// unless it says only that time ran out, and the earlier one says why.
func tellingCause(earlier, later error) error {
	if earlier != nil && isLateness(later) && !isLateness(earlier) {
		return earlier
	}
	return later
}

// replyCode is the first word of an error reply. Redis before 7.0 wraps the
// reply to a command inside a script, whose code then stands behind a dash.
func replyCode(text string) string {
	if strings.HasPrefix(text, "ERR Error running script") {
		if _, inner, found := strings.Cut(text, ": -"); found {
			text = inner
		}
	}
	code, _, _ := strings.Cut(text, " ")
	return code
}

// refresh has a Cluster's slots read again after an error that may be due to
// them: go-redis does so by itself only where a node sent it elsewhere. It reads
// at most five times a second, whoever asks.
func refresh(ctx context.Context, rdb redis.UniversalClient, err error) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok || err == nil || ctx.Err() != nil {
		return
	}
	if class := classify(err); class == classNotRun || class == classLost {
		cluster.ReloadState(ctx)
	}
}
