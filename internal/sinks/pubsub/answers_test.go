package pubsub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/sinks/pubsub"
)

// answers speaks Pub/Sub's REST API with the answers that a test wants, which no emulator gives.
type answers struct {
	// The answer to each, a nil one is as of a topic that works.
	ask, subscriptions, permissions, send func(w http.ResponseWriter, body string) (isDone bool)

	mu       sync.Mutex
	requests [][]string // the bodies of the messages of each
	sizes    []int      // of each
	paths    []string
	logins   []string
}

type sent struct {
	Messages []struct {
		Data        []byte            `json:"data"`
		Attributes  map[string]string `json:"attributes"`
		OrderingKey string            `json:"orderingKey"`
	} `json:"messages"`
}

// ServeHTTP implements [http.Handler].
func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	a.mu.Lock()
	a.logins = append(a.logins, r.Header.Get("Authorization"))
	a.paths = append(a.paths, r.Method+" "+r.URL.EscapedPath())
	a.mu.Unlock()
	verb := r.URL.Path[strings.LastIndexAny(r.URL.Path, "/:")+1:]
	answer := a.ask
	switch verb {
	case "subscriptions":
		answer = a.subscriptions
	case "testIamPermissions":
		answer = a.permissions
	case "publish":
		answer = a.send
		a.mu.Lock()
		a.requests, a.sizes = append(a.requests, bodiesOf(string(body))), append(a.sizes, len(body))
		a.mu.Unlock()
	}
	switch {
	case answer != nil && answer(w, string(body)):
	case verb == "publish":
		store(w, len(bodiesOf(string(body))))
	case verb == "testIamPermissions":
		_, _ = w.Write(body)
	case verb == "subscriptions":
		_, _ = w.Write([]byte(`{"subscriptions":["projects/p/subscriptions/s"]}`))
	default:
		_, _ = w.Write([]byte(`{}`))
	}
}

func bodiesOf(text string) (bodies []string) {
	var input sent
	_ = json.Unmarshal([]byte(text), &input)
	for _, m := range input.Messages {
		bodies = append(bodies, string(m.Data))
	}
	return bodies
}

// store answers that so many were stored.
func store(w http.ResponseWriter, count int) {
	ids := make([]string, count)
	for i := range ids {
		ids[i] = fmt.Sprint("stored-", i)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"messageIds": ids})
}

// refuse answers with an error, as Google's documents say.
func refuse(status int, code string) func(http.ResponseWriter, string) bool {
	return func(w http.ResponseWriter, _ string) bool {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": status, "status": code, "message": "what Google says"}})
		return true
	}
}

func (a *answers) sends() [][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

// open opens a sink on such a server.
func (a *answers) open(t testing.TB, change func(*pubsub.Config)) *pubsub.Sink {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return openSink(t, server.URL, change)
}

func openSink(t testing.TB, url string, change func(*pubsub.Config)) *pubsub.Sink {
	t.Helper()
	config := pubsub.Config{Project: project, URL: url, PublishTimeout: time.Minute}
	if change != nil {
		change(&config)
	}
	sink, err := pubsub.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close(context.Background())) })
	return sink
}
