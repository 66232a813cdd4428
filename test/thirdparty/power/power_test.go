//go:build linux

package power

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
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
// PostgreSQL, the bridge and NATS. Each setting but the first is a control: it differs in one
// thing, and is known to lose.
func TestPowerCuts(t *testing.T) {
	always := []string{"--appendonly", "yes", "--appendfsync", "always"}
	everySecond := []string{"--appendonly", "yes", "--appendfsync", "everysec"}
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
	info, err := client.Info(t.Context(), "server").Result()
	require.NoError(t, err)
	return client.Do(t.Context(), "WAITAOF", 1, 0, 1000).Err() == nil && !conn.ConfirmsEarly(info, "everysec")
}

// machine is what loses its power as one.
type machine struct {
	setting

	disk  *Disk
	world *trial.World
	box   *outbox.Outbox

	mu        sync.Mutex
	confirmed map[string]bool // by id: it must arrive, or, where false, must not
	lost      int             // bytes of caches
}

func newMachine(t *testing.T, s setting, binary string) *machine {
	t.Helper()
	m := &machine{setting: s, disk: newDisk(t, *seed), confirmed: map[string]bool{}}
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
			t.Log(m.world.Bridge.Log())
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
	var starting errgroup.Group
	for _, server := range []*service.Server{m.world.Redis, m.world.Broker.Server(), m.world.Database.Server} {
		starting.Go(func() error { return server.Start(t.Context()) })
	}
	require.NoError(t, starting.Wait())
	require.NoError(t, m.world.Bridge.Start(t.Context()))
}

// schedule schedules a message, and cancels one in four.
func (m *machine) schedule(ctx context.Context, client *delay.Client, id string) {
	message := delay.Message{ID: id, Topic: m.world.Topic}
	if _, err := client.Schedule(ctx, message, delay.After(rand.N(2*time.Second))); err != nil { //nolint:gosec // any will do
		return
	}
	m.confirm(id, true)
	if rand.N(4) > 0 { //nolint:gosec // as above
		return
	}
	err := client.Cancel(ctx, delay.Ref{ID: id})
	m.mu.Lock()
	defer m.mu.Unlock()
	if delete(m.confirmed, id); err == nil { // Else it may have been cancelled.
		m.confirmed[id] = false
	}
}

// commit does so with a row.
func (m *machine) commit(ctx context.Context, id string) {
	tx, err := m.world.Database.DB.BeginTx(ctx, nil)
	if err != nil {
		_ = trial.Sleep(ctx, 10*time.Millisecond)
		return
	}
	defer func() { _ = tx.Rollback() }()
	message := delay.Message{ID: id, Topic: m.world.Topic}
	if _, err = m.box.Schedule(ctx, tx, m.world.Queue(), message, delay.After(rand.N(2*time.Second))); err == nil { //nolint:gosec // as above
		err = tx.Commit()
	}
	if err == nil {
		m.confirm(id, true)
	}
}

func (m *machine) confirm(id string, arrives bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.confirmed[id] = arrives
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
	patience := ctx
	if m.loses != nothing { // What Redis has lost half of may be left behind.
		var end context.CancelFunc
		patience, end = context.WithTimeout(ctx, 30*time.Second)
		defer end()
	}
	if _, err := m.world.Drained(patience); m.loses == nothing {
		require.NoError(t, err)
	}
	arrived := m.arrived(ctx, t)
	lost, undone, confirmed := map[string]int{}, 0, 0
	for id, arrives := range m.confirmed {
		kind, _, _ := strings.Cut(id, "-")
		switch {
		case arrives && arrived[id] == 0:
			lost[kind]++
		case !arrives && arrived[id] > 0:
			undone++
		}
		confirmed++
	}
	copies := 0
	for _, n := range arrived {
		copies += n - 1
	}
	t.Logf("%d cuts took %d bytes: of %d confirmed %d direct and %d of rows are lost, %d cancels undone; %d arrived, %d copies (seed %d)",
		*cuts, m.lost, confirmed, lost[direct], lost[rows], undone, len(arrived), copies, *seed)
	require.NotZero(t, m.lost, "the cuts took nothing")
	if m.loses == nothing {
		require.Zero(t, lost[direct]+lost[rows]+undone)
		return
	}
	isLost := 0
	for _, kind := range []string{direct, rows} {
		if strings.Contains(m.loses, kind) {
			isLost += lost[kind]
		} else {
			require.Zero(t, lost[kind], kind)
		}
	}
	require.NotZero(t, isLost, "the control has lost nothing: the rig proves nothing")
}

// arrived is how often each message is in the stream.
func (m *machine) arrived(ctx context.Context, t *testing.T) map[string]int {
	t.Helper()
	stored, err := m.world.Broker.Stored(ctx, m.world.Topic)
	require.NoError(t, err)
	found := map[string]int{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	left := stored
	if left == 0 {
		return found
	}
	require.NoError(t, m.world.Broker.Consume(ctx, m.world.Topic, func(r trial.Record) {
		found[r.ID]++
		if left--; left == 0 {
			cancel()
		}
	}))
	require.LessOrEqual(t, left, int64(0), "not all could be read")
	return found
}
