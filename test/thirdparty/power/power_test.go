//go:build linux

package power

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/verify"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/test/trial"
)

var (
	cuts = flag.Int("cuts", 2, "how often the power is cut in each trial; controls need more than a few")
	seed = flag.Uint64("seed", rand.Uint64(), "what a cut takes")
)

// enough is how many cuts a control needs to lose something.
const enough = 5

// setting is what a machine's servers run with.
type setting struct {
	name       string
	redis      []string
	nats       string // of its jetstream section
	postgres   string
	durability delay.Durability
	// loses is which of the confirmed may be lost: what was scheduled with the client, in
	// rows, or nothing.
	loses string
}

const nothing, direct, rows, all = "", "direct", "row", "direct row"

// TestPowerCuts cuts the power of a whole machine, with producers of both ways, Redis,
// PostgreSQL, the bridge and NATS. A setting that may lose something is a control: it differs
// from the first one in one thing, and is known to lose. It checks I1, I2 and I11.
func TestPowerCuts(t *testing.T) {
	// Redis is not to start with a file that was cut within a transaction (see docs/operations.md), nor to write a new
	// one: cut then, it starts with neither.
	file := []string{"--appendonly", "yes", "--aof-load-truncated", "no", "--auto-aof-rewrite-percentage", "0"}
	always := append(slices.Clip(file), "--appendfsync", "always")
	everySecond := append(slices.Clip(file), "--appendfsync", "everysec")
	const synced = "sync_interval: always"
	settings := []setting{
		{"all sync", always, synced, "", delay.Memory, nothing},
		{"redis everysec", everySecond, synced, "", delay.Memory, direct},
		{"nats by default", always, "", "", delay.Memory, all},
		{"postgres asynchronous", always, synced, "synchronous_commit = off\nwal_writer_delay = 10s", delay.Memory, rows},
	}
	if confirmsInTime(t) {
		settings = append(settings, setting{"redis everysec, durability fsync", everySecond, synced, "", delay.Fsync, nothing})
	}
	binary, err := trial.Build(t.Context(), t.TempDir())
	require.NoError(t, err)
	for _, s := range settings {
		if s.loses != nothing && *cuts < enough {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			m := newMachine(t, s, binary)
			for n := range *cuts {
				m.round(t, n)
			}
			m.judge(t)
		})
	}
}

// confirmsInTime reports whether the Redis of the tests tells what its disk has, also where
// that is synced once a second.
func confirmsInTime(t *testing.T) bool {
	t.Helper()
	server, err := service.StartRedis(t.Context(), "--appendonly", "yes")
	require.NoError(t, err)
	defer server.Close()
	client := clientOf(t, server)
	info := client.InfoMap(t.Context(), "server")
	require.NoError(t, info.Err())
	return client.Do(t.Context(), "WAITAOF", 1, 0, 1000).Err() == nil && !conn.ConfirmsEarly(info.Item("Server", "redis_version"), "everysec")
}

// machine is what loses its power as one.
type machine struct {
	setting

	disk  *Disk
	world *trial.World
	box   *outbox.Outbox

	ledgers map[string]*trial.Ledger // of what was scheduled directly, and of rows
	lost    int                      // bytes of caches
	torn    int                      // how often Redis' file did not end with a whole transaction
}

func newMachine(t *testing.T, s setting, binary string) *machine {
	t.Helper()
	m := &machine{setting: s, disk: newDisk(t, *seed), ledgers: map[string]*trial.Ledger{direct: trial.NewLedger(), rows: trial.NewLedger()}}
	t.Setenv("TMPDIR", m.disk.Dir())
	keys := ""
	if s.durability == delay.Fsync {
		keys = "durability: fsync"
	}
	var err error
	m.world, err = trial.NewWorld(t.Context(), trial.Options{
		Binary: binary, Broker: "nats", Shards: 2, Redis: s.redis, Database: "postgres", QueueKeys: keys,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			m.explain(t)
		}
		m.world.Close()
	})
	m.box = outbox.New(outbox.PostgreSQL, outbox.WithRedis(m.world.RDB, m.world.Prefix()))
	configure(t, m.world.Broker.Server(), "nats.conf", func(text string) string {
		return strings.Replace(text, "jetstream {", "jetstream {"+s.nats+"\n", 1)
	})
	configure(t, m.world.Database.Server, "postgresql.conf", func(text string) string { return text + s.postgres + "\n" })
	require.NoError(t, m.disk.Sync()) // What was set up is older than the machine.
	return m
}

// configure changes a server's configuration and starts it again.
func configure(t *testing.T, server *service.Server, name string, change func(string) string) {
	t.Helper()
	path := filepath.Join(server.Dir(), name)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, server.Stop())
	require.NoError(t, os.WriteFile(path, []byte(change(string(text))), 0o600))
	require.NoError(t, server.Start(t.Context()))
}

// round has producers at work, and then cuts the power.
func (m *machine) round(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client, err := delay.NewClient(m.world.RDB, m.world.Queue(), delay.WithPrefix(m.world.Prefix()), delay.WithDurability(m.durability))
	require.NoError(t, err)
	var producers sync.WaitGroup
	for p := range 4 {
		producers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				m.schedule(ctx, client, fmt.Sprintf("direct-%d-%d-%d", n, p, i))
			}
		})
		producers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				m.commit(ctx, fmt.Sprintf("row-%d-%d-%d", n, p, i))
				if m.durability == delay.Fsync { // The relay waits a second for the disk.
					_ = trial.Sleep(ctx, time.Second/4)
				}
			}
		})
	}
	require.NoError(t, trial.Sleep(t.Context(), time.Second+rand.N(time.Second))) //nolint:gosec // any time will do
	var dying errgroup.Group
	for _, kill := range []func() error{
		m.world.Redis.Kill, m.world.Broker.Server().Kill, m.world.Database.Server.Kill, m.world.Bridge.Kill,
	} {
		dying.Go(kill)
	}
	require.NoError(t, dying.Wait())
	cancel()
	producers.Wait()
	lost, err := m.disk.Cut()
	require.NoError(t, err)
	m.lost += lost
	m.mendFile(t)
	var starting errgroup.Group
	for _, server := range []*service.Server{m.world.Redis, m.world.Broker.Server(), m.world.Database.Server} {
		starting.Go(func() error { return server.Start(t.Context()) })
	}
	require.NoError(t, starting.Wait())
	require.NoError(t, m.world.Bridge.Start(t.Context()))
}

// mendFile does what is to be done before Redis starts again: what does not end with a whole transaction loses it.
func (m *machine) mendFile(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(m.world.Redis.Dir(), "appendonlydir", "*.incr.aof"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	fix := exec.CommandContext(t.Context(), "redis-check-aof", "--fix", files[0])
	fix.Stdin = strings.NewReader("y\n")
	out, err := fix.CombinedOutput()
	require.NoError(t, err, "%s", out)
	if strings.Contains(string(out), "truncated") {
		m.torn++
	}
}

// explain tells what there is to know of a failure: the bridge's log, Redis' own, and what verify finds.
func (m *machine) explain(t *testing.T) {
	t.Helper()
	t.Log(m.world.Bridge.Log())
	t.Log(m.world.Redis.Log())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	err := verify.Run(ctx, m.world.Store(), verify.Options{}, func(b verify.Breach) error {
		t.Log("verify: ", b)
		return nil
	})
	t.Log("verify ends with ", err)
}

// schedule schedules a message, and cancels one in four.
func (m *machine) schedule(ctx context.Context, client *delay.Client, id string) {
	message, ledger := delay.Message{ID: id, Topic: m.world.Topic}, m.ledgers[direct]
	result, err := client.Schedule(ctx, message, delay.After(rand.N(2*time.Second))) //nolint:gosec // any will do
	if err != nil {
		ledger.Unsure(message, id)
		return
	}
	ledger.Scheduled(message, result)
	if rand.N(4) > 0 { //nolint:gosec // as above
		return
	}
	switch err := client.Cancel(ctx, delay.Ref{ID: id}); {
	case err == nil:
		ledger.Cancelled(id)
	case errors.Is(err, delay.ErrTooLate), errors.Is(err, delay.ErrNotFound): // It arrives.
	default:
		ledger.Maybe(id)
	}
}

// commit does so with a row.
func (m *machine) commit(ctx context.Context, id string) {
	message := delay.Message{ID: id, Topic: m.world.Topic}
	tx, err := m.world.Database.DB.BeginTx(ctx, nil)
	if err != nil {
		_ = trial.Sleep(ctx, 10*time.Millisecond)
		return
	}
	defer func() { _ = tx.Rollback() }()
	ref, err := m.box.Schedule(ctx, tx, m.world.Queue(), message, delay.After(rand.N(2*time.Second))) //nolint:gosec // as above
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		m.ledgers[rows].Unsure(message, id)
		return
	}
	m.ledgers[rows].Scheduled(message, delay.Result{Ref: ref})
}

// judge waits until nothing is left to be done, and compares.
func (m *machine) judge(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.Eventually(t, func() bool {
		pending, err := m.world.Database.Pending(ctx)
		return err == nil && pending == 0
	}, 2*time.Minute, 50*time.Millisecond)
	_, err := m.world.Drained(ctx)
	require.NoError(t, err)
	m.read(ctx, t)
	reports := map[string]trial.Report{}
	for kind, ledger := range m.ledgers {
		reports[kind] = ledger.Report()
	}
	t.Logf("%d cuts took %d bytes (seed %d), Redis' file was torn %d times\n%s: %s\n%s: %s", *cuts, m.lost, *seed, m.torn, direct, reports[direct], rows, reports[rows])
	require.NotZero(t, m.lost, "the cuts took nothing")
	isLost := 0
	for kind, report := range reports {
		if strings.Contains(m.loses, kind) {
			isLost += report.Lost
		} else if m.loses == nothing {
			require.Zero(t, report.Wrong(), kind)
		} else {
			require.Zero(t, report.Lost, kind)
		}
	}
	if m.loses != nothing {
		require.NotZero(t, isLost, "the control has lost nothing: the rig proves nothing")
	}
}

// read tells the ledgers what is in the stream.
func (m *machine) read(ctx context.Context, t *testing.T) {
	t.Helper()
	left, err := m.world.Broker.Stored(ctx, m.world.Topic)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	require.NotZero(t, left)
	require.NoError(t, m.world.Broker.Consume(ctx, m.world.Topic, func(r trial.Record) {
		kind, _, _ := strings.Cut(r.ID, "-")
		m.ledgers[kind].Got(r)
		if left--; left == 0 {
			cancel()
		}
	}))
	require.LessOrEqual(t, left, int64(0), "not all could be read")
}
