package inlet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/app"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/inlet"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// asBridge names the configuration with which this program is a bridge, which a test may kill.
const asBridge = "DELAYBRIDGE_TEST_INLET"

func TestMain(m *testing.M) {
	file := os.Getenv(asBridge)
	if file == "" {
		os.Exit(m.Run())
	}
	cfg, err := config.Load(file, nil)
	if err == nil {
		err = app.Run(context.Background(), cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// patience is for slow machines.
const patience = 3 * time.Minute

// scene is an inlet with all its topics.
type scene struct {
	broker

	file string
	log  testenv.Log
	// admin is where the bridge listens that runs in this process; nil if it does not.
	admin net.Listener
	// killed is the last bridge that was.
	killed *os.ProcessState
}

func newScene(t testing.TB, b broker, redisURL, more string) *scene {
	t.Helper()
	s := &scene{broker: b, file: filepath.Join(t.TempDir(), "bridge.yaml")}
	text := fmt.Sprintf(`
prefix: %s
redis: {url: %q}
queues: {orders: {shards: 2, sink: events}}
sinks: {events: %s}
inlets: {in: {sink: events, from: %s, queue: orders, topic: %s, replies: %s, dead: %s%s}}
admin: {listen: ""}
log: {level: debug}
`, testenv.Name(t, "p"), redisURL, b.sink(), b.from(), b.topic("out"), b.topic("replies"), b.topic("dead"), more)
	require.NoError(t, os.WriteFile(s.file, []byte(text), 0o600))
	return s
}

// waits waits until the inlet says that it cannot do what it got.
func (s *scene) waits(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(s.log.String(), "event=inlet_waits") }, patience, 10*time.Millisecond)
}

// run runs the bridge in this process until the test ends, or stop is called.
func (s *scene) run(t testing.TB) (stop func()) {
	t.Helper()
	cfg, err := config.Load(s.file, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	logger := slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &s.log), nil))
	run := func() error { return app.Run(ctx, cfg, logger) }
	if s.admin != nil {
		cfg.Admin.Listen = s.admin.Addr().String()
		run = func() error { return app.Run(ctx, cfg, logger, app.AdminListener(s.admin)) }
	}
	go func() { ended <- run() }()
	hasEnded := false
	stop = func() {
		if !hasEnded {
			hasEnded = true
			cancel()
			assert.NoError(t, <-ended)
		}
	}
	t.Cleanup(stop)
	return stop
}

// start runs a bridge that is killed by the test.
func (s *scene) start(t testing.TB) (kill func()) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), asBridge+"="+s.file)
	cmd.Stderr = t.Output()
	require.NoError(t, cmd.Start())
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			s.killed = cmd.ProcessState
		}
	}
	t.Cleanup(kill)
	return kill
}

func next(t testing.TB, from <-chan letter) letter {
	t.Helper()
	select {
	case l := <-from:
		return l
	case <-time.After(patience):
		require.Fail(t, "nothing comes")
		return letter{}
	}
}

// replies takes that many answers, and returns those of each id in their order.
func replies(t testing.TB, from <-chan letter, n int) map[string][]inlet.Reply {
	t.Helper()
	all := map[string][]inlet.Reply{}
	for range n {
		var r inlet.Reply
		l := next(t, from)
		require.NoError(t, json.Unmarshal([]byte(l.body), &r), l.body)
		all[r.ID] = append(all[r.ID], r)
	}
	return all
}

func ask(body string, headers ...string) letter {
	l := letter{headers: map[string]string{}, body: body, id: "m-" + body}
	for i := 0; i < len(headers); i += 2 {
		l.headers[headers[i]] = headers[i+1]
	}
	return l
}

// onEach runs a case on all brokers.
func onEach(t *testing.T, test func(*testing.T, broker)) {
	t.Parallel()
	for name, open := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// TestOperations: what is asked is done, in the order of an identity, and answered; what is not
// understood is in the dead topic, and blocks nothing.
func TestOperations(t *testing.T) {
	onEach(t, func(t *testing.T, b broker) {
		s := newScene(t, b, testenv.Redis(t), "")
		out, answers, dead := b.consume(t, "out"), b.consume(t, "replies"), b.consume(t, "dead")
		b.publish(t,
			ask("a", "delay-id", "a", "delay-in", "1h", "delay-key", "k"),
			ask("a2", "delay-id", "a", "delay-op", "cancel", "delay-key", "k"),
			ask("poison", "delay-op", "explode", "delay-id", "p", "their", "own"),
			ask("b", "delay-id", "b", "delay-in", "1h"),
			ask("b2", "delay-id", "b", "delay-op", "reschedule", "delay-in", "50"),
			ask("c", "delay-id", "c", "delay-in", "10ms", "their", "own", "delay-tags", "red"),
			ask("d", "delay-id", "d", "delay-in", "1h"),
			ask("d", "delay-id", "d", "delay-in", "1h"), // doubled
			ask("e", "delay-id", "e", "delay-op", "cancel"),
			ask("f", "delay-in", "0s"), // named by its position, or its message-id
		)
		s.run(t)
		got := replies(t, answers, 10)
		no := false
		done := func(op, id, key, status string) inlet.Reply {
			return inlet.Reply{Op: op, ID: id, Key: key, Status: status, MaybePublished: &no}
		}
		assert.Equal(t, []inlet.Reply{done("schedule", "a", "k", "created"), done("cancel", "a", "k", "cancelled")}, got["a"])
		assert.Equal(t, []inlet.Reply{done("schedule", "b", "", "created"), done("reschedule", "b", "", "rescheduled")}, got["b"])
		assert.Equal(t, []inlet.Reply{done("schedule", "d", "", "created"), done("schedule", "d", "", "existing")}, got["d"])
		require.Len(t, got["e"], 1)
		assert.Equal(t, "not_found", got["e"][0].Error.Code)
		require.Len(t, got["p"], 1)
		assert.Equal(t, "invalid", got["p"][0].Error.Code)
		assert.Equal(t, "delay-op", got["p"][0].Error.Field)
		published := map[string]letter{}
		for range 3 {
			l := next(t, out)
			published[l.body] = l
		}
		require.Contains(t, published, "b")
		require.Contains(t, published, "f")
		assert.Equal(t, "own", published["c"].headers["their"])
		assert.Equal(t, "red", published["c"].headers["delay-tags"])
		assert.Equal(t, "c", published["c"].headers["delay-id"])
		assert.NotContains(t, published["c"].headers, "delay-in")
		poison := next(t, dead)
		assert.Equal(t, "poison", poison.body)
		assert.Contains(t, poison.headers["delay-error"], "explode")
		assert.Equal(t, "explode", poison.headers["delay-op"])
		assert.Equal(t, "own", poison.headers["their"])
	})
}

// seen is the inlet as the API shows it.
func (s *scene) seen(t testing.TB) operate.InletView {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.admin.Addr().String()+"/api/v1/inlets", http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(t, http.StatusOK, response.StatusCode)
	var all operate.Inlets
	require.NoError(t, json.NewDecoder(response.Body).Decode(&all))
	require.Len(t, all.Inlets, 1)
	return all.Inlets[0]
}

// becomes waits until the inlet is in a state, and waits for that.
func (s *scene) becomes(t testing.TB, state, cause string) operate.InletView {
	t.Helper()
	var last operate.InletView
	require.Eventually(t, func() bool {
		last = s.seen(t)
		return last.State == state && last.Cause == cause
	}, patience, 20*time.Millisecond, "%+v", &last)
	return last
}

// TestSeen: the API shows what an inlet has done and refused, and for what it waits.
func TestSeen(t *testing.T) {
	onEach(t, func(t *testing.T, b broker) {
		redis, err := url.Parse(testenv.Redis(t))
		require.NoError(t, err)
		proxy := testenv.NewProxy(t, redis.Host)
		s := newScene(t, b, "redis://"+proxy.Addr(), "")
		s.admin, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		s.run(t)
		first := s.becomes(t, operate.InletConsuming, "")
		assert.Equal(t, "in", first.Name)
		assert.Equal(t, b.topic("commands"), first.From)
		b.publish(t, ask("a", "delay-id", "a", "delay-in", "1h"), ask("secret", "delay-op", "explode", "delay-id", "b"), ask("c", "delay-id", "c", "delay-op", "cancel"))
		want := []operate.InletResult{{Result: "invalid", Count: 1}, {Op: "cancel", Result: "not_found", Count: 1}, {Op: "schedule", Result: "created", Count: 1}}
		var v operate.InletView
		require.Eventually(t, func() bool {
			v = s.seen(t)
			return assert.ObjectsAreEqual(want, v.Results) && v.Behind != nil && v.InHand == 0
		}, patience, 20*time.Millisecond, "%+v", &v)
		require.NotNil(t, v.Refused)
		assert.Equal(t, []string{"b", "delay-op"}, []string{v.Refused.ID, v.Refused.Field})
		assert.Contains(t, v.Refused.Reason, "explode")
		_, isRabbit := b.(*rabbitBroker)
		assert.Equal(t, isRabbit, v.Refused.Position == "", v.Refused.Position)
		text, err := json.Marshal(v)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "secret")

		proxy.Refuse(true)
		proxy.Cut()
		b.publish(t, ask("d", "delay-id", "d", "delay-in", "1h"))
		v = s.becomes(t, operate.InletWaiting, operate.CauseRedis)
		assert.Equal(t, 1, v.InHand)
		assert.NotEmpty(t, v.Reason)
		proxy.Refuse(false)
		require.Eventually(t, func() bool {
			v = s.seen(t)
			return v.State == operate.InletConsuming && v.InHand == 0 // It waits for nothing before it has done it.
		}, patience, 20*time.Millisecond, "%+v", &v)
		if isRabbit {
			s.withoutReplies(t)
		}
	})
}

// withoutReplies takes the queue of answers away, and gives it back.
func (s *scene) withoutReplies(t testing.TB) {
	t.Helper()
	b, isRabbit := s.broker.(*rabbitBroker)
	require.True(t, isRabbit)
	_, err := b.channel.QueueDelete(b.topic("replies"), false, false, false)
	require.NoError(t, err)
	b.publish(t, ask("e", "delay-id", "e", "delay-in", "1h"))
	s.becomes(t, operate.InletWaiting, operate.CauseReplies)
	_, err = b.channel.QueueDeclare(b.topic("replies"), true, false, false, false, nil)
	require.NoError(t, err)
	s.becomes(t, operate.InletConsuming, "")
}

// TestRedisAway: while Redis is away nothing is answered or lost, and all is done when it is back.
func TestRedisAway(t *testing.T) {
	onEach(t, func(t *testing.T, b broker) {
		redis, err := url.Parse(testenv.Redis(t))
		require.NoError(t, err)
		proxy := testenv.NewProxy(t, redis.Host)
		s := newScene(t, b, "redis://"+proxy.Addr(), "")
		out, answers := b.consume(t, "out"), b.consume(t, "replies")
		s.run(t)
		b.publish(t, ask("before", "delay-id", "before", "delay-in", "0s"))
		replies(t, answers, 1)
		assert.Equal(t, "before", next(t, out).body)
		proxy.Refuse(true)
		proxy.Cut()
		b.publish(t, ask("a", "delay-id", "a", "delay-in", "0s"), ask("b", "delay-op", "explode", "delay-id", "b"), ask("c", "delay-id", "c", "delay-in", "0s"))
		s.waits(t)
		proxy.Refuse(false)
		assert.Equal(t, "b", next(t, b.consume(t, "dead")).body)
		got := replies(t, answers, 3)
		assert.Equal(t, "created", got["a"][0].Status)
		assert.Equal(t, "created", got["c"][0].Status)
		assert.ElementsMatch(t, []string{"a", "c"}, []string{next(t, out).body, next(t, out).body})
	})
}

// TestKilled: bridges are killed while they consume. Each message has its effect, and once: the copies
// that a killed bridge may leave have one uid, and a higher attempt.
func TestKilled(t *testing.T) {
	onEach(t, func(t *testing.T, b broker) {
		const messages, kills = 1200, 4
		s := newScene(t, b, testenv.Redis(t), "")
		out := b.consume(t, "out")
		published := make(chan struct{})
		go func() {
			defer close(published)
			for n := 0; n < messages; n += 40 {
				var batch []letter
				for i := n; i < n+40; i++ {
					id := fmt.Sprintf("i%d", i)
					switch i % 4 {
					case 0: // Cancelled, and scheduled again.
						batch = append(batch, ask(id+" first", "delay-id", id, "delay-in", "1h"), ask(id+" cancel", "delay-id", id, "delay-op", "cancel"),
							ask(id, "delay-id", id, "delay-in", "200ms"))
					case 1:
						batch = append(batch, ask(id+" never", "delay-id", id, "delay-in", "1h"), ask(id, "delay-id", id, "delay-op", "reschedule", "delay-in", "100"))
					default:
						batch = append(batch, ask(id, "delay-id", id, "delay-in", fmt.Sprint(i%3*100)))
					}
				}
				b.publish(t, batch...)
				<-time.After(20 * time.Millisecond) // Publishers take their time, so that kills meet work.
			}
		}()
		uids, attempts := map[string]map[string]int{}, map[string]int{}
		seen := 0
		for kill := 1; kill <= kills+1; kill++ {
			stop := s.start(t)
			want := messages * kill / (kills + 1)
			for len(uids) < want {
				l := next(t, out)
				id, uid := l.headers["delay-id"], l.headers["delay-uid"]
				if uids[id] == nil {
					uids[id] = map[string]int{}
				}
				uids[id][uid]++
				if seen++; l.headers["delay-attempt"] != "1" {
					attempts[id]++
				}
				require.NotContains(t, l.body, "first", "what was cancelled")
			}
			stop()
		}
		<-published
		require.Len(t, uids, messages)
		for id, of := range uids {
			require.Len(t, of, 1, "%s has had more than one effect", id)
			for _, copies := range of {
				require.LessOrEqual(t, copies-1, attempts[id], "%s: a copy that does not say so", id)
			}
		}
		t.Logf("%d copies of %d messages", seen-messages, messages)
	})
}

// TestTwoInstances share the work, and one takes over what the other leaves.
func TestTwoInstances(t *testing.T) {
	onEach(t, func(t *testing.T, b broker) {
		s := newScene(t, b, testenv.Redis(t), "")
		out := b.consume(t, "out")
		first := s.run(t)
		s.run(t)
		want := map[string]bool{}
		publish := func(from, to int) {
			for i := from; i < to; i++ {
				id := fmt.Sprintf("i%d", i)
				want[id] = true
				b.publish(t, ask(id, "delay-id", id, "delay-in", "0s"))
			}
		}
		await := func() {
			for len(want) > 0 {
				id := next(t, out).headers["delay-id"]
				require.Contains(t, want, id, "twice")
				delete(want, id)
			}
		}
		publish(0, 50)
		await()
		publish(50, 100)
		first()
		publish(100, 150)
		await()
	})
}

// TestXDelay: a publisher of RabbitMQ's plugin, with nothing changed but where it publishes.
func TestXDelay(t *testing.T) {
	t.Parallel()
	b, isRabbit := newRabbit(t).(*rabbitBroker)
	require.True(t, isRabbit)
	s := newScene(t, b, testenv.Redis(t), "")
	text, err := os.ReadFile(s.file)
	require.NoError(t, err)
	text = []byte(strings.Replace(string(text), "topic: "+b.topic("out")+", ", "", 1)) // The routing key is.
	require.NoError(t, os.WriteFile(s.file, text, 0o600))
	publishPlugin(t, b)
	out := b.consume(t, "out")
	s.run(t)
	got := map[string]letter{}
	for range 4 {
		l := next(t, out)
		got[l.body] = l
	}
	for _, body := range []string{"masstransit", "brighter", "negative", "none"} {
		assert.Contains(t, got, body)
		assert.NotContains(t, got[body].headers, "x-delay")
	}
	assert.Equal(t, "11110000-2222-3333-4444-555566667777", got["masstransit"].id)
	assert.Equal(t, "application/vnd.masstransit+json", got["masstransit"].content)
	assert.Equal(t, "c", got["brighter"].headers["CorrelationId"])
	assert.Equal(t, "0", got["brighter"].headers["HandledCount"])
}
