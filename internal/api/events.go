package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const (
	// How many listeners there may be.
	mostStreams, shareOfStreams, reserveOfStreams = 32, 16, 4
	// eventEvery is the interval between events; eventTimeout how long a listener may take to read one.
	eventEvery   = time.Second
	eventTimeout = 5 * time.Second
)

// events has the stream of overviews. It is written here and not by huma's package sse,
// which knows no end of the server.
type events struct {
	*queues

	streams *quota
	closed  chan struct{}
	end     sync.Once
}

func newEvents(q *queues) *events {
	return &events{queues: q, streams: newQuota(mostStreams, shareOfStreams, reserveOfStreams), closed: make(chan struct{})}
}

// close ends the streams.
func (e *events) close() { e.end.Do(func() { close(e.closed) }) }

func (e *events) register() {
	describe[struct{}, huma.StreamResponse](e.core, eventsCall(e.described))
	huma.Register(e.huma, eventsCall(e.huma), func(ctx context.Context, _ *struct{}) (*huma.StreamResponse, error) {
		caller := callOf(ctx)
		place := e.streams.holding(payerOf(caller.Caller, caller.request), caller.isOperator)
		if !place.try(1) {
			return nil, newProblem(http.StatusTooManyRequests, "rate_limited",
				fmt.Sprintf("there are too many listeners: %d at the most, and %d of one caller", mostStreams, shareOfStreams))
		}
		return &huma.StreamResponse{Body: func(ctx huma.Context) { //nolint:contextcheck // The request's is the same.
			defer place.release()
			r, w := humago.Unwrap(ctx)
			e.stream(r.Context(), w, func() bool { return e.config.Guard.Holds(caller.request, caller.Caller) })
		}}, nil
	})
}

func eventsCall(api huma.API) huma.Operation {
	return huma.Operation{
		OperationID: "events", Method: http.MethodGet, Path: "/events",
		Summary:  "Stream the overview of /queues as server-sent events, one a second",
		Metadata: map[string]any{metaRoles: viewers, metaOpen: true},
		Responses: map[string]*huma.Response{"200": {
			Description: "Events named overview; the data of each is an Overview in JSON.",
			Content: map[string]*huma.MediaType{"text/event-stream": {
				Schema: api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Overview](), true, ""),
			}},
		}},
	}
}

// stream tells one listener how everything is until it goes, or may no longer listen, or the server stops.
func (e *events) stream(ctx context.Context, w http.ResponseWriter, mayListen func() bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it back
	out := http.NewResponseController(w)
	for {
		data, err := json.Marshal(e.overview(ctx))
		if err != nil || out.SetWriteDeadline(time.Now().Add(eventTimeout)) != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "event: overview\ndata: %s\n\n", data); err != nil || out.Flush() != nil {
			return
		}
		if !wait.SleepOrWake(ctx, eventEvery, e.closed) || e.isClosed() || !mayListen() {
			return
		}
	}
}

func (e *events) isClosed() bool {
	select {
	case <-e.closed:
		return true
	default:
		return false
	}
}
