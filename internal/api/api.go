// Package api is the HTTP API under /api/v1: what the SDK and the commands can do, for
// programs in other languages, for people, and for the console.
//
// Package operate has the queries, the verbs and their JSON, which the commands use, too. This
// package adds HTTP. There is one file per resource, with its calls, from which huma reads
// requests and makes the OpenAPI document. router.go is what every call passes: who calls
// ([access]), how long and how many at once. problem.go gives errors their status. schema.go
// adds to the document what huma does not know: the limits that the SDK checks, and the
// problems of each call.
//
// A body is counted while it is read, and its call takes a place when all of it is there
// (body.go). What is limited is limited for each caller, too, and a part of it is kept for
// operators (quota.go): calls, streams, bytes.
//
// What operators change and read, and what is refused, is written down, and what producers
// do is not: it is the traffic, and would leave no room for the rest; see audit.go.
// Payloads are in no log, no error and no audit entry.
package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// Sink is how a sink is.
type Sink struct {
	Name string
	Type message.SinkType
	Up   bool
	// Detail says why it is not up.
	Detail string
	// Since is when it went up or down, as far as is known.
	Since time.Time
}

// Config says what the API serves, and what it asks. All of it but Open is needed.
type Config struct {
	// Version and Instance are the process' own.
	Version, Instance string
	// Queues are those that there are now, by name. Nobody changes the map.
	Queues func() map[string]*operate.Queue
	// Declarations are the queues that are declared by the API.
	Declarations *operate.Declarations
	// Sinks must not wait for anything.
	Sinks func() []Sink
	// Inlets must not wait for anything.
	Inlets func() operate.Inlets
	// Rules are a queue's settings in the configuration in force.
	Rules func(queue string) operate.RulesView
	// Rooms must not wait for anything.
	Rooms func(queue string) inspect.Rooms
	// Unconfirmed is as [store.Queue.Unconfirmed] returns it. It must not wait for anything.
	Unconfirmed func(queue string) []error
	// Lateness is that of the messages of a queue that this process has published.
	Lateness func(queue string) operate.Histogram
	// Open makes the body of a sealed message clear, to be shown; nil if none is to be.
	Open func(m *message.Message) error
	// Timed serves a call and notes how long that took; it may be nil.
	Timed func(call string, next http.Handler) http.Handler
	// Refused counts a call that was refused: unauthorized, forbidden, read_only or rate_limited.
	Refused func(code string)
	// Level is what the process logs.
	Level  Level
	Guard  *access.Guard
	Logger *slog.Logger
}

// API serves the calls. It owns no goroutine but those of its calls, and Run; Close ends the
// streams, which would not end by themselves.
type API struct {
	core   *core
	events *events
	track  *track
	// document describes the calls, as OpenAPI.
	document []byte
}

// New returns the API; it does no I/O.
func New(config Config) (*API, error) {
	c := newCore(&config)
	q := &queues{c, newOverview(&config)}
	a := &API{core: c, events: newEvents(q), track: newTrack(c)}
	m := &messages{c}
	for _, resource := range []interface{ register() }{
		&schedules{c}, &recurrings{c}, m, &listing{c}, &pauses{c}, &losses{c}, &jobs{c}, q, &shards{q}, &inlets{c}, &forecasts{c}, &declarations{c}, &audits{c}, &levels{c}, a.events, a.track,
	} {
		resource.register()
	}
	var err error
	if a.document, err = json.Marshal(c.description()); err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}
	c.router.HandleFunc("GET "+base+"/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(a.document) // An error means that the caller has gone.
	})
	(&signIns{c}).register()
	return a, nil
}

// Document is the OpenAPI document that bridges of this version serve.
func Document(version string) ([]byte, error) {
	a, err := New(Config{Version: version})
	if err != nil {
		return nil, err
	}
	return a.document, nil
}

// ServeHTTP serves what is below /api/v1/.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.core.router.ServeHTTP(w, r) }

// Run keeps the rates and the lateness of the last ten minutes until ctx ends.
func (a *API) Run(ctx context.Context) { a.track.run(ctx) }

// Close ends the streams. It may be called twice.
func (a *API) Close() { a.events.close() }
