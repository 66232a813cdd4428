// Package api is the HTTP API under /api/v1: what the SDK and the commands can do, for
// programs in other languages, for people, and for the console.
//
// Producers' calls go through [delay.Client], so that the API answers what the SDK
// answers; operators' calls go through [store.Admin]. There is one file a resource,
// and in each the operations with their types, from which huma reads requests and makes
// the OpenAPI document. router.go is what every call passes: who calls ([access]), how
// long and how many at once. problem.go is the one mapping of errors.
//
// A change is written down, see audit.go. Payloads are in no log, no error and no
// audit entry.
package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
)

// Queue is what the API needs of a queue.
type Queue struct {
	Sink  string
	Store *store.Queue
	// Clients are the SDK's clients of the queue, one for each policy.
	Clients map[delay.Conflict]*delay.Client
}

// Sink is how a sink is.
type Sink struct {
	Name string
	Type message.SinkType
	Up   bool
	// Detail says why it is not up.
	Detail string
}

// Config says what the API serves, and what it asks. All of it is needed.
type Config struct {
	// Version and Instance are the process' own.
	Version, Instance string
	Queues            map[string]*Queue
	// Sinks must not wait for anything.
	Sinks func() []Sink
	// Lateness is that of the messages of a queue that this process has published.
	Lateness func(queue string) Histogram
	Guard    *access.Guard
	Logger   *slog.Logger
}

// API serves the calls. It owns no goroutine but those of its calls; Close ends the
// streams, which would not end by themselves.
type API struct {
	config  Config
	router  *router
	huma    huma.API
	view    *overview
	streams chan struct{} // a place in it is a stream that is served
	closed  chan struct{}
	close   sync.Once
}

// New returns the API; it does no I/O.
func New(config Config) (*API, error) {
	a := &API{config: config, streams: make(chan struct{}, mostStreams), closed: make(chan struct{})}
	a.view = newOverview(&a.config)
	a.router = newRouter(a)
	a.huma = huma.NewAPI(huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "delaybridge", Version: config.Version, Description: "Messages that are published later, unless they are cancelled."},
			Servers: []*huma.Server{{URL: base}},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}},
			},
			Security: []map[string][]string{{"token": {}}, {}},
		},
		Formats:                      map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
	}, a.router)
	for _, register := range []func(){a.messages, a.message, a.list, a.pauses, a.jobs, a.queues, a.shards, a.forecast, a.audits, a.events} {
		register()
	}
	spec, err := json.Marshal(a.huma.OpenAPI())
	if err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}
	a.router.HandleFunc("GET "+base+"/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(spec) // An error means that the caller has gone.
	})
	return a, nil
}

var jsonFormat = huma.DefaultJSONFormat

// ServeHTTP serves what is below /api/v1/.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.router.ServeHTTP(w, r) }

// Close ends the streams. It may be called twice.
func (a *API) Close() { a.close.Do(func() { close(a.closed) }) }

// mayUse refuses a queue that the caller may not use, and one that is not there;
// in this order, so that nobody learns which there are.
func (a *API) mayUse(caller *access.Caller, queue string) error {
	if queue == "" {
		return nil
	}
	if !caller.MayUse(queue) {
		return forbidden(caller.Name + " may not use the queue " + queue)
	}
	if a.config.Queues[queue] == nil {
		return notFound("there is no queue " + queue)
	}
	return nil
}

// names are those of the queues that the caller may use.
func (a *API) names(ctx context.Context) []string {
	caller := callOf(ctx)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(a.config.Queues)), func(name string) bool { return !caller.MayUse(name) })
}

// operation describes a call to huma.
type operation struct {
	id, method, path, summary string
	roles                     []access.Role
	status                    int   // 0: 200
	maxBody                   int64 // 0: 1 MiB
}

// Who may make a call.
var (
	producers = []access.Role{access.Producer, access.Operator}
	everybody = []access.Role{access.Producer, access.Viewer, access.Operator}
	viewers   = []access.Role{access.Viewer, access.Operator}
	operators = []access.Role{access.Operator}
)

// register adds a call. The handler's errors become problems.
func register[I, O any](a *API, op operation, handle func(ctx context.Context, in *I) (*O, error)) {
	huma.Register(a.huma, huma.Operation{
		OperationID: op.id, Method: op.method, Path: op.path, Summary: op.summary, DefaultStatus: op.status,
		MaxBodyBytes: op.maxBody, BodyReadTimeout: callTimeout, Metadata: map[string]any{metaRoles: op.roles},
	}, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, a.failed(ctx, op.id, problem(err))
		}
		return out, nil
	})
}

// failed logs what is nobody's mistake but ours.
func (a *API) failed(ctx context.Context, operation string, p *Problem) error {
	if p.Code == "failed" {
		a.config.Logger.ErrorContext(ctx, "call failed", "event", "api", "operation", operation, "err", p.Detail)
	}
	return p
}

// QueueParam names the queue of a call.
type QueueParam struct {
	Queue string `path:"queue" doc:"The queue's name." example:"orders"`
}
