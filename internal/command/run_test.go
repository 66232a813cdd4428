package command

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
)

// TestRun takes a message from the command line to the broker.
// It checks I2, and I13: after SIGTERM the exit code is 0, and what waits is there.
func TestRun(t *testing.T) {
	t.Parallel()
	url, topic, addr := testenv.NATS(t), testenv.Name(t, "t"), freeAddr(t)
	f := setupWith(t, 2, url, addr)
	got := subscribe(t, url, topic)

	p := start(t, os.Environ(), "run", "--config", f.file)
	due := dueAt(t, f.ok("schedule", "--topic", topic, "--in", "300ms", "--id", "a", "-o", "json", "hello").object(t))
	msg, err := got.NextMsg(commandTimeout)
	require.NoError(t, err)
	assert.False(t, time.Now().Before(due), "early")
	assert.Equal(t, "hello", string(msg.Data))
	assert.Equal(t, "a", msg.Header.Get("delay-id"))

	assert.Regexp(t, `delaybridge_build_info\{.*version="`+release+`"`, page(t, addr, "/metrics"))
	assert.Contains(t, page(t, addr, "/api/v1/openapi.json"), `"version":"`+release+`"`)

	f.ok("schedule", "--topic", topic, "--in", "1h", "--id", "later", "x")
	p.signal(syscall.SIGTERM)
	assert.Equal(t, exitDone, p.wait(), p.output())
	f.ok("get", "--id", "later")
	for line := range p.lines {
		var entry map[string]any
		assert.NoError(t, json.Unmarshal([]byte(line), &entry), line)
	}
}

// TestRunOutbox takes a row from a transaction to the broker; the bridge leaves no
// trace of a relay that died, and what is beyond the horizon stays in its row.
func TestRunOutbox(t *testing.T) {
	t.Parallel()
	for driver, dsn := range map[schema.Dialect]func(testing.TB) string{schema.Postgres: testenv.Postgres, schema.MySQL: testenv.MariaDB} {
		t.Run(string(driver), func(t *testing.T) {
			t.Parallel()
			url, topic, dsn := testenv.NATS(t), testenv.Name(t, "t"), dsn(t)
			addr := freeAddr(t)
			f := setupWith(t, 2, url, addr)
			text, err := os.ReadFile(f.file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(f.file, fmt.Appendf(text, "outbox: {driver: %s, dsn: %q}\n", driver, dsn), 0o600))
			assert.Equal(t, exitDone, bridge(t, "", "outbox", "migrate", "up", "--config", f.file).code)
			got := subscribe(t, url, topic)
			db, err := sqldb.Open(driver, dsn)
			require.NoError(t, err)
			defer func() { _ = db.Close() }()
			box := outbox.New(driver)
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			for id, when := range map[string]delay.When{"now": delay.After(0), "later": delay.After(48 * time.Hour)} {
				_, err = box.Schedule(t.Context(), tx, "orders", delay.Message{ID: id, Topic: topic, Body: []byte(id)}, when)
				require.NoError(t, err)
			}
			require.NoError(t, tx.Commit())

			p := start(t, os.Environ(), "run", "--config", f.file)
			msg, err := got.NextMsg(commandTimeout)
			require.NoError(t, err)
			assert.Equal(t, "now", string(msg.Data))
			p.signal(syscall.SIGTERM)
			assert.Equal(t, exitDone, p.wait(), p.output())
			count := func(table string) (n int) {
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
				return n
			}
			assert.Equal(t, 1, count("delay_outbox WHERE status = 0"), "the one beyond the horizon")
			assert.Equal(t, 1, count("delay_outbox WHERE status = 2"), "the one that was published")
			assert.NotContains(t, p.output(), `"level":"ERROR"`)
		})
	}
}

// TestRunAdminPortTaken is refused at the start, and says why.
func TestRunAdminPortTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	f := setupWith(t, 1, "nats://127.0.0.1:1", taken.Addr().String())
	o := bridge(t, "", "run", "--config", f.file)
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, taken.Addr().String())
}

// TestRunEvictingRedis is refused: waiting messages would be lost.
func TestRunEvictingRedis(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	f := setup(t)
	o := bridge(t, "", "run", "--config", elsewhere(t, f, server.URL()))
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, "allkeys-lru")
}

// TestRunSecondSignal does not wait for the drain: a sink that is down, with a
// message in its hands, would take the whole time.
func TestRunSecondSignal(t *testing.T) {
	t.Parallel()
	server := testenv.StartNATS(t, "")
	addr := freeAddr(t)
	f := setupWith(t, 1, server.URL(), addr)
	f.ok("schedule", "--topic", "t", "--in", "0s", "x")
	server.Pause()
	p := start(t, os.Environ(), "run", "--config", f.file)
	require.Eventually(t, func() bool { return isReady(addr) }, commandTimeout, 10*time.Millisecond)
	p.signal(syscall.SIGINT)
	p.signal(syscall.SIGTERM)
	assert.Equal(t, exitFailed, p.wait(), p.output())
	server.Resume()
}

// subscribe makes a stream for the topic and returns what comes.
func subscribe(t *testing.T, url, topic string) *nats.Subscription {
	t.Helper()
	nc, err := nats.Connect(url)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: topic, Subjects: []string{topic}})
	require.NoError(t, err)
	got, err := nc.SubscribeSync(topic)
	require.NoError(t, err)
	return got
}

func isReady(addr string) bool {
	response, err := http.Get("http://" + addr + "/readyz") //nolint:noctx // local
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode == http.StatusOK
}

// freeAddr is an address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	return "127.0.0.1:" + testenv.Port(t)
}
