package vectors_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/api"
	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/operate"
)

const (
	// queue is what the vectors call the queue, whose keys have a name of their own.
	queue  = "orders"
	shards = 2
	// tokens are those of the vectors that have some.
	tokens = "producer-token-1 producer\nviewer-token-1 viewer\n"
)

// scene is the real API with one queue.
type scene struct {
	*store.Queue
	server *httptest.Server
}

// openScene opens the API; with tokens if the vector has one.
func openScene(t *testing.T, hasTokens bool) *scene {
	t.Helper()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	s := &scene{Queue: storetest.New(t, rdb, shards)}
	clients := map[delay.Conflict]*delay.Client{}
	for _, conflict := range operate.Conflicts {
		clients[conflict], err = delay.NewClient(rdb, s.Name(), delay.WithConflict(conflict))
		require.NoError(t, err)
	}
	logger := slog.New(slog.DiscardHandler)
	var file *access.File
	if hasTokens {
		name := filepath.Join(t.TempDir(), "tokens")
		require.NoError(t, os.WriteFile(name, []byte(tokens), 0o600))
		file, err = access.Open(name, logger)
		require.NoError(t, err)
	}
	guard, err := access.NewGuard(access.Options{Tokens: file})
	require.NoError(t, err)
	queues := map[string]*operate.Queue{queue: {Name: queue, Sink: "events", Store: s.Queue, Clients: clients}}
	served, err := api.New(api.Config{
		Version: "v1", Instance: "bridge-1", Logger: logger, Guard: guard,
		Queues:      func() map[string]*operate.Queue { return queues },
		Sinks:       func() []api.Sink { return nil },
		Rooms:       func(string) inspect.Rooms { return inspect.Rooms{} },
		Unconfirmed: func(string) []error { return nil },
		Inlets:      func() operate.Inlets { return operate.Inlets{} },
		Rules:       func(string) operate.RulesView { return operate.RulesView{} },
		Lateness:    func(string) operate.Histogram { return operate.Histogram{} },
		Refused:     func(string) {},
	})
	require.NoError(t, err)
	s.server = httptest.NewServer(served)
	t.Cleanup(func() {
		served.Close()
		s.server.Close()
	})
	return s
}

// ask sends a request and returns the answer, with its body as JSON.
func (s *scene) ask(t *testing.T, r request) answer {
	t.Helper()
	var body io.Reader = http.NoBody
	if r.Body != nil {
		content, err := json.Marshal(r.Body)
		require.NoError(t, err)
		body = bytes.NewReader(content)
	}
	query := url.Values{}
	for name, value := range r.Query {
		query.Set(name, value)
	}
	asked, err := http.NewRequestWithContext(t.Context(), r.Method, s.server.URL+r.Path+"?"+query.Encode(), body)
	require.NoError(t, err)
	if r.Body != nil {
		asked.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.Headers {
		asked.Header.Set(name, strings.ReplaceAll(value, "$KEY", "a-key-of-the-sdk"))
	}
	response, err := s.server.Client().Do(asked)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	got := answer{Status: response.StatusCode, Headers: map[string]string{}}
	require.NoError(t, json.Unmarshal(bytes.ReplaceAll(content, []byte(s.Name()), []byte(queue)), &got.Body), "%s", content)
	for name := range response.Header {
		got.Headers[name] = response.Header.Get(name)
	}
	return got
}

// claim takes what is due, as a bridge does, so that it is in flight.
func (s *scene) claim(t *testing.T) {
	t.Helper()
	taken := 0
	for shard := range shards {
		claim, err := s.Shard(shard).Claim(t.Context(), message.ClaimRequest{
			Token: message.ClaimToken{Instance: "bridge-1/boot", Number: 1}, Max: 100, Timeout: time.Hour, Lease: time.Hour,
		})
		require.NoError(t, err)
		taken += len(claim.Messages)
	}
	require.Equal(t, 1, taken)
}

// TestCalls has the real API answer each request as its vector says.
func TestCalls(t *testing.T) {
	t.Parallel()
	var vectors struct {
		Calls []struct {
			Name    string
			Real    *bool
			Options struct{ Token string }
			Before  []json.RawMessage
			Request request
			Answer  answer
		}
	}
	read(t, "calls.json", &vectors)
	documented := openDocument(t)
	for _, v := range vectors.Calls {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			documented.has(t, v.Request.Method, v.Request.Path, v.Answer)
			if v.Real != nil && !*v.Real {
				return
			}
			s := openScene(t, v.Options.Token != "")
			for _, step := range v.Before {
				if string(step) == `"claim"` {
					s.claim(t)
					continue
				}
				var before request
				require.NoError(t, json.Unmarshal(step, &before))
				require.Equal(t, http.StatusCreated, s.ask(t, before).Status, "%s", step)
			}
			got := s.ask(t, v.Request)
			assert.Equal(t, v.Answer.Status, got.Status, "%v", got.Body)
			assert.Empty(t, placeholders{}.differs("body", v.Answer.Body, got.Body))
			for name, value := range v.Answer.Headers {
				assert.Equal(t, value, got.Headers[http.CanonicalHeaderKey(name)], name)
			}
		})
	}
}

// document is the API's own description.
type document struct {
	Paths      map[string]map[string]struct{ Responses map[string]json.RawMessage }
	Components struct{ Responses map[string]json.RawMessage }
}

func openDocument(t *testing.T) (d document) {
	t.Helper()
	answer := openScene(t, false).ask(t, request{Method: "GET", Path: "/api/v1/openapi.json"})
	content, err := json.Marshal(answer.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &d))
	return d
}

// A template matches the escaped paths of its calls.
var parameter = regexp.MustCompile(`\\{[a-z]+\\}`)

// has requires that the call may answer so.
func (d document) has(t *testing.T, method, where string, a answer) {
	t.Helper()
	for template, calls := range d.Paths {
		matches := regexp.MustCompile("^/api/v1" + parameter.ReplaceAllString(regexp.QuoteMeta(template), "[^/:]+") + "$")
		described, ok := calls[strings.ToLower(method)]
		if !ok || !matches.MatchString(where) {
			continue
		}
		response := described.Responses[strconv.Itoa(a.Status)]
		require.NotNil(t, response, "%s %s may not answer %d", method, template, a.Status)
		var shared struct {
			Ref string `json:"$ref"`
		}
		require.NoError(t, json.Unmarshal(response, &shared))
		if shared.Ref != "" {
			response = d.Components.Responses[path.Base(shared.Ref)]
		}
		if body, _ := a.Body.(object); body["code"] != nil {
			require.Contains(t, string(response), strconv.Quote(body["code"].(string)), "%s %s, status %d", method, template, a.Status)
		}
		return
	}
	require.Fail(t, "no such call", "%s %s", method, where)
}

// paths are those of the calls of faults.json, whose requests are in calls.json.
var paths = map[string][2]string{
	"schedule": {"POST", "/messages"}, "schedule_batch": {"POST", "/messages:batch"}, "cancel_all": {"DELETE", "/messages"},
	"get": {"GET", "/messages/a"}, "cancel": {"DELETE", "/messages/a"}, "reschedule": {"POST", "/messages/a:reschedule"},
	"publish_now": {"POST", "/messages/a:publish-now"},
}

// TestAnswersOfFaults: what a bridge answers during a fault, it may answer.
func TestAnswersOfFaults(t *testing.T) {
	t.Parallel()
	var vectors struct {
		Vectors []struct {
			Name  string
			Calls []struct {
				Call     call
				Attempts []struct {
					Server int
					Answer *answer
				}
			}
			Servers int
		}
	}
	read(t, "faults.json", &vectors)
	documented := openDocument(t)
	for _, v := range vectors.Vectors {
		for _, c := range v.Calls {
			for _, a := range c.Attempts {
				assert.Less(t, a.Server, v.Servers, v.Name)
				if a.Answer != nil && a.Answer.Text == "" {
					where := paths[c.Call.Do]
					documented.has(t, where[0], "/api/v1/queues/"+queue+where[1], *a.Answer)
				}
			}
		}
	}
}
