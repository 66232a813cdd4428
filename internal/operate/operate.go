// Package operate is what operators ask of queues and do to them, once: the HTTP API and the
// commands are adapters of it, and so say the same in the same words.
//
// There is one file a subject: messages, lists, jobs, pauses, shards, statistics, forecasts.
// In each are the queries and verbs that both adapters have, and the views: what programs get
// as JSON, with the tags from which the API's document is made. Times are RFC 3339 with
// milliseconds; durations are seconds, and their names end in _s. What is not known is not
// there, and never 0. errors.go is the one classification of errors.
//
// The package knows no HTTP, no flags and no terminal. The API adds who may do what, limits
// and idempotency; the commands add tables, prompts and exit codes.
package operate

import (
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
)

// Queue is a queue as operators use it.
type Queue struct {
	Name, Sink string
	// Owner and Contacts say who it belongs to, and where they are reached; they may be empty.
	Owner    string
	Contacts []string
	// File is the file that declares it, as [config.Config.QueueFile] has it.
	File string
	// Since is when the instance took it as it is; zero for one that is no instance.
	Since time.Time

	Store *store.Queue
	// Clients are the SDK's clients of the queue, one for each policy.
	Clients map[delay.Conflict]*delay.Client
}

// source is what kind of file declares it, and which queue file.
func (q *Queue) source() (kind, file string) {
	switch q.File {
	case "":
		return "main", ""
	case config.DeclaredAs(q.Name):
		return "api", ""
	}
	return "file", q.File
}

// Admin is what the store has for operators.
func (q *Queue) Admin() *inspect.Admin { return inspect.NewAdmin(q.Store) }

// Jobs are those of the queue.
func (q *Queue) Jobs() *job.Jobs { return job.New(q.Store) }

// Client is the SDK's client that refuses what is there already.
func (q *Queue) Client() *delay.Client { return q.Clients[delay.Reject] }

// Conflicts are the SDK's policies, as callers name them; without a name one is refused.
var Conflicts = map[string]delay.Conflict{"": delay.Reject, "reject": delay.Reject, "keep": delay.Keep, "replace": delay.Replace}

// Stamp is a time as programs see it; empty if it is not known.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(message.TimeFormat)
}

// seconds is a duration as programs see it, to the millisecond.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// ParseTime reads a time; empty is the zero time.
func ParseTime(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, Invalid(field, fmt.Sprintf("%s %.64q is not a time: give RFC 3339, as 2027-01-31T09:00:00.000Z", field, text))
	}
	return t, nil
}
