package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/delaybridge/delaybridge/internal/wait"
)

const (
	// mostStreams is how many listeners there may be.
	mostStreams = 32
	// eventEvery is how often a listener is told; eventTimeout how long it may take to read.
	eventEvery   = time.Second
	eventTimeout = 5 * time.Second
)

// events has the stream of overviews. It is written here and not by huma's package sse,
// which knows no end of the server.
func (a *API) events() {
	huma.Register(a.huma, huma.Operation{
		OperationID: "events", Method: http.MethodGet, Path: "/events",
		Summary:  "Stream the overview of /queues as server-sent events, one a second",
		Metadata: map[string]any{metaRoles: viewers, metaOpen: true},
		Responses: map[string]*huma.Response{"200": {
			Description: "Events named overview; the data of each is an Overview in JSON.",
			Content: map[string]*huma.MediaType{"text/event-stream": {
				Schema: a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Overview](), true, ""),
			}},
		}},
	}, func(context.Context, *struct{}) (*huma.StreamResponse, error) {
		select {
		case a.streams <- struct{}{}:
			return &huma.StreamResponse{Body: func(ctx huma.Context) { //nolint:contextcheck // The request's is the same.
				defer func() { <-a.streams }()
				r, w := humago.Unwrap(ctx)
				a.stream(r.Context(), w)
			}}, nil
		default:
			return nil, newProblem(http.StatusTooManyRequests, "rate_limited", fmt.Sprintf("there are %d listeners already", mostStreams))
		}
	})
}

// stream tells one listener how everything is until it goes, or the server stops.
func (a *API) stream(ctx context.Context, w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it back
	out := http.NewResponseController(w)
	for {
		data, err := json.Marshal(a.overview(ctx))
		if err != nil || out.SetWriteDeadline(time.Now().Add(eventTimeout)) != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "event: overview\ndata: %s\n\n", data); err != nil || out.Flush() != nil {
			return
		}
		if !wait.SleepOrWake(ctx, eventEvery, a.closed) || a.isClosed() {
			return
		}
	}
}

func (a *API) isClosed() bool {
	select {
	case <-a.closed:
		return true
	default:
		return false
	}
}
