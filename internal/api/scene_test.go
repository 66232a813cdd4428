package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/api"
	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/declarations"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/declared"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// TestMain gives the property tests the same seed each time, unless -rapid.seed says
// otherwise.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.seed": "1", "rapid.nofailfile": "true", "rapid.checks": "100"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// scene is an API with one queue in a real Redis.
type scene struct {
	t      testing.TB
	rdb    *redis.Client
	queue  *store.Queue
	client *delay.Client
	api    *api.API
	spec   *huma.OpenAPI

	findables   []findable
	server      *httptest.Server
	log         *testenv.Log
	guard       *access.Guard
	tokens      string // where they are
	level       *level
	sinks       []api.Sink
	inlets      operate.Inlets
	rooms       inspect.Rooms
	unconfirmed []error // by shard
	rules       operate.RulesView

	declarations *operate.Declarations
	// configured is what declarations are checked by; a test may replace it.
	configured *atomic.Pointer[config.Config]

	refusals *refusals
	// queues are those that there are; a test may replace the map.
	queues *atomic.Pointer[map[string]*operate.Queue]
}

// tokens of the scenes that have some.
const (
	producerToken = "producer-token-1"
	viewerToken   = "viewer-token-1"
	operatorToken = "operator-token-1"
)

// scenery changes a scene before it opens.
type scenery struct {
	dial     func(ctx context.Context, network, addr string) (net.Conn, error) // to Redis; nil: as ever
	tokens   string                                                            // the file's content; QUEUE in it is the queue's name
	access   access.Settings
	readOnly bool
	durable  *delay.Durability
	open     func(*message.Message) error
}

// How long what must happen may take, and how often it is looked for.
const (
	patience = time.Minute
	tick     = 50 * time.Millisecond
)

func newScene(t testing.TB, setting scenery) *scene {
	t.Helper()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	options.Dialer = setting.dial
	s := &scene{t: t, rdb: redis.NewClient(options), log: &testenv.Log{}, queues: &atomic.Pointer[map[string]*operate.Queue]{}, configured: &atomic.Pointer[config.Config]{}}
	t.Cleanup(func() { _ = s.rdb.Close() })
	s.queue = storetest.New(t, s.rdb, 2)
	name := s.queue.Name()
	clients := map[delay.Conflict]*delay.Client{}
	for _, conflict := range []delay.Conflict{delay.Reject, delay.Keep, delay.Replace} {
		options := []delay.Option{delay.WithConflict(conflict)}
		if setting.durable != nil {
			options = append(options, delay.WithDurability(*setting.durable))
		}
		clients[conflict], err = delay.NewClient(s.rdb, name, options...)
		require.NoError(t, err)
	}
	s.client = clients[delay.Reject]
	logger := slog.New(slog.NewTextHandler(s.log, nil))
	var file *access.File
	if setting.tokens != "" {
		s.tokens = filepath.Join(t.TempDir(), "tokens")
		require.NoError(t, os.WriteFile(s.tokens, []byte(strings.ReplaceAll(setting.tokens, "QUEUE", name)), 0o600))
		file, err = access.Open(s.tokens, logger)
		require.NoError(t, err)
	}
	s.sinks = []api.Sink{{Name: "events", Type: message.RabbitMQ, Detail: "connection refused", Since: time.UnixMilli(1_700_000_000_000)}}
	s.inlets = inletsOf(name)
	s.level, s.refusals = &level{}, &refusals{counts: map[string]int{}}
	guard, err := access.NewGuard(access.Options{Tokens: file, ReadOnly: setting.readOnly, Settings: setting.access, Logger: logger})
	require.NoError(t, err)
	s.guard = guard
	s.queues.Store(&map[string]*operate.Queue{name: {Name: name, Sink: "events", Owner: "ann", Contacts: []string{"desk"}, Store: s.queue, Clients: clients}})
	s.configured.Store(s.configure("queue_files: {api: {max_queues: 3, max_shards: 8}}"))
	s.declarations = &operate.Declarations{
		Register: declarations.New(declarations.Config{
			Store: declared.New(s.rdb, name, time.Second), IsUsed: func() bool { return true }, Lost: func() {}, Logger: logger, // A prefix of its own.
		}),
		Config: s.configured.Load,
		Admin: func(queue string) *inspect.Admin {
			return inspect.NewAdmin(store.New(s.rdb, keyPrefix(name, queue), queue))
		},
	}
	t.Cleanup(func() { _ = s.rdb.Del(context.WithoutCancel(t.Context()), keys.Queue{Prefix: name}.Declared()).Err() })
	a, err := api.New(api.Config{
		Declarations: s.declarations,
		Version:      "v1", Instance: "bridge-1",
		Queues:      func() map[string]*operate.Queue { return *s.queues.Load() },
		Sinks:       func() []api.Sink { return s.sinks },
		Rooms:       func(string) inspect.Rooms { return s.rooms },
		Unconfirmed: func(string) []error { return s.unconfirmed },
		Inlets:      func() operate.Inlets { return s.inlets },
		Rules:       func(string) operate.RulesView { return s.rules },
		Lateness:    func(string) operate.Histogram { return operate.Histogram{} },
		Guard:       guard, Open: setting.open, Refused: s.refusals.count, Level: s.level, Logger: logger,
	})
	require.NoError(t, err)
	s.api, s.spec = a, a.Spec()
	s.findables = findables(s.spec)
	s.server = httptest.NewServer(a)
	t.Cleanup(func() {
		a.Close()
		s.server.Close()
	})
	return s
}

// keyPrefix is that of a queue's keys: the scene's own queue is where all are, others have one of their own.
func keyPrefix(scene, queue string) string {
	if queue == scene {
		return "delay"
	}
	return scene
}

// configure is a configuration with the queue of the scene, and more.
func (s *scene) configure(more string) *config.Config {
	s.t.Helper()
	cfg, err := config.Parse(fmt.Appendf(nil, "queues: {%s: {sink: events}}\nsinks: {events: {type: nats, url: 'nats://127.0.0.1:1'}}\n%s", s.queue.Name(), more), nil)
	require.NoError(s.t, err)
	return cfg
}

// declare declares a queue, whatever the configuration says.
func (s *scene) declare(name, queue string, now time.Time) {
	s.t.Helper()
	_, err := s.declarations.Register.Change(s.t.Context(), func(is declared.Set, _ time.Time) (declared.Set, error) {
		return is.With(name, []byte(queue), "ann", now), nil
	})
	require.NoError(s.t, err)
}

// answer is what the API has answered.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
}

// call makes a call; QUEUE in the path is the queue's name. body is JSON, or a value.
func (s *scene) call(method, path string, body any, headers ...string) answer {
	s.t.Helper()
	var reader io.Reader = http.NoBody
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		encoded, err := json.Marshal(b)
		require.NoError(s.t, err)
		reader = bytes.NewReader(encoded)
	}
	url := s.server.URL + "/api/v1" + strings.ReplaceAll(path, "QUEUE", s.queue.Name())
	request, err := http.NewRequestWithContext(s.t.Context(), method, url, reader)
	require.NoError(s.t, err)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			request.Host = headers[i+1]
			continue
		}
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := s.server.Client().Do(request)
	require.NoError(s.t, err)
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	a := answer{s.t, response.StatusCode, response.Header, content}
	s.documented(method, path, a)
	return a
}

func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

// is requires a status and decodes the answer.
func (a answer) is(status int) map[string]any {
	a.t.Helper()
	require.Equal(a.t, status, a.status, "%s", a.body)
	var m map[string]any
	require.NoError(a.t, json.Unmarshal(a.body, &m), "%s", a.body)
	return m
}

// refused requires a problem of that status and code, and returns its field.
func (a answer) refused(status int, code string) string {
	a.t.Helper()
	m := a.is(status)
	require.Equal(a.t, code, m["code"], "%s", a.body)
	require.Equal(a.t, "application/problem+json", a.header.Get("Content-Type"))
	require.InDelta(a.t, status, m["status"], 0)
	require.NotEmpty(a.t, m["detail"])
	require.NotContains(a.t, m["detail"], "\n")
	field, _ := m["field"].(string)
	return field
}

// schedule makes a message that waits for an hour.
func (s *scene) schedule(id string, more ...string) {
	s.t.Helper()
	body := map[string]any{"id": id, "topic": "t", "body": "payload", "in": "1h"}
	for i := 0; i < len(more); i += 2 {
		body[more[i]] = more[i+1]
		if more[i] == "at" {
			delete(body, "in")
		}
	}
	s.call("POST", "/queues/QUEUE/messages", body).is(http.StatusCreated)
}

// longAgo makes a message due: "now" may be up to a millisecond away.
const longAgo = "2020-01-01T00:00:00Z"

func text(v any) string { return fmt.Sprint(v) }

// claim takes all that is due, as a bridge does.
func (s *scene) claim() (claims []message.Claim) {
	s.t.Helper()
	for shard := range 2 {
		claim, err := s.queue.Shard(shard).Claim(s.t.Context(), message.ClaimRequest{
			Token: message.ClaimToken{Instance: "bridge-1/boot", Number: 1}, Max: 100, Timeout: time.Hour, Lease: time.Hour,
		})
		require.NoError(s.t, err)
		claims = append(claims, claim)
	}
	return claims
}

// refusals counts the calls that were refused, by code.
type refusals struct {
	mu     sync.Mutex
	counts map[string]int
}

func (r *refusals) count(code string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[code]++
}

func (r *refusals) of(code string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[code]
}

// changes are the entries of the audit, the newest first: who, what and what came of it.
func (s *scene) changes(headers ...string) (log []string) {
	s.t.Helper()
	for _, c := range s.call("GET", "/audit?limit=1000&queue=QUEUE", nil, headers...).is(http.StatusOK)["changes"].([]any) {
		m := c.(map[string]any)
		log = append(log, fmt.Sprint(m["who"], " ", m["action"], " ", m["what"], " ", m["answer"]))
	}
	return log
}
