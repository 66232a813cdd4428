package relay

import (
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const past, soon, far = outboxtest.Past, outboxtest.Soon, outboxtest.Far

type insert = outboxtest.Insert

var errTest = errors.New("broken by the test")

// relayStarter starts relays on a scene.
type relayStarter struct {
	t        *testing.T
	observer *recorder
	config   Config
}

func newRelaying(t *testing.T, s *outboxtest.Scene) relayStarter {
	t.Helper()
	r := relayStarter{t: t, observer: &recorder{}}
	r.config = Config{Database: s.DB.Database, Poll: 10 * time.Millisecond, Observer: r.observer, Logger: s.Logger()}
	return r
}

// requireNotRefused: the database has ended no work of a relay. That it was slow, or could
// not be reached in time, is the machine's doing.
func requireNotRefused(t *testing.T, logs *outboxtest.Logs) {
	t.Helper()
	slow := regexp.MustCompile(errSlow.Error() + "|deadline exceeded|statement timeout|i/o timeout|failed to connect")
	for line := range strings.Lines(logs.String()) {
		require.False(t, strings.Contains(line, "outbox_database_away") && !slow.MatchString(line), line)
	}
}

// relay is one that does not run.
func (r *relayStarter) relay() *Relay {
	r.t.Helper()
	relay, err := New(r.config)
	require.NoError(r.t, err)
	return relay
}

// scene is one with a fake Redis.
type scene struct {
	*outboxtest.Scene
	relayStarter
	redis *fakeRedis
}

func newScene(t *testing.T, d *outboxtest.Database) *scene {
	t.Helper()
	s := &scene{Scene: outboxtest.NewScene(t, d), redis: newFakeRedis()}
	s.relayStarter = newRelaying(t, s.Scene)
	s.config.Clock = s.redis.clock
	for _, name := range []string{"orders", "mails"} {
		s.config.Queues = append(s.config.Queues, outbox.Queue{
			Name: name, Store: &fakeQueue{fakeRedis: s.redis, name: name}, Sink: message.NATS, MaxMessage: message.DefaultMaxSize,
		})
	}
	return s
}

// live is a message of the fake Redis.
func (s *scene) live(id string) *fakeMessage {
	return s.redis.get(table.Identity{Queue: "orders", Key: "", ID: id})
}

// start runs a relay until the returned function is called, or the test ends.
func (s *scene) start(adjust ...func(*Config)) (relay *Relay, stop func()) {
	s.t.Helper()
	return s.startOn(s.Scene, adjust...)
}

func (r *relayStarter) startOn(s *outboxtest.Scene, adjust ...func(*Config)) (relay *Relay, stop func()) {
	r.t.Helper()
	config := r.config
	for _, f := range adjust {
		f(&config)
	}
	relay, err := New(config)
	require.NoError(r.t, err)
	return relay, s.Run(relay.Run)
}

// realScene is one with a real Redis.
type realScene struct {
	*outboxtest.Real
	relayStarter
}

func newReal(t *testing.T, d *outboxtest.Database) *realScene {
	t.Helper()
	return newRealOn(t, d, outboxtest.Connect(t, testenv.Redis(t)))
}

func newRealOn(t *testing.T, d *outboxtest.Database, rdb *redis.Client) *realScene {
	t.Helper()
	s := &realScene{Real: outboxtest.NewRealOn(t, d, rdb)}
	s.relayStarter = newRelaying(t, s.Scene)
	s.config.Queues, s.config.Clock = []outbox.Queue{s.Queue}, s.Store.Clock
	return s
}

func (s *realScene) start(adjust ...func(*Config)) (relay *Relay, stop func()) {
	s.t.Helper()
	return s.startOn(s.Scene, adjust...)
}

type recorder struct {
	mu      sync.Mutex
	applied map[string]int
	backlog int
	blocked int
	oldest  time.Duration
	skew    time.Duration
	skews   int
	unknown int
}

func (r *recorder) Backlog(rows int, oldest time.Duration, blocked int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backlog, r.oldest, r.blocked = rows, oldest, blocked
}

func (r *recorder) Applied(queue, verb, state string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.applied == nil {
		r.applied = map[string]int{}
	}
	r.applied[queue+" "+verb+" "+state]++
}

func (r *recorder) Skew(ahead time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skew = ahead
	r.skews++
}

func (r *recorder) UnknownQueues(rows int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unknown = rows
}

func (r *recorder) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied[what]
}
