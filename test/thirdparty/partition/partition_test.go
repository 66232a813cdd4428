//go:build linux

package partition

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/test/trial"
)

var (
	schedules = flag.Int("schedules", 3, "how many random schedules are played")
	seed      = flag.Uint64("seed", rand.Uint64(), "of the random schedules")
)

// bridgeEnv tells the process in the namespace where the bridge's binary is.
const bridgeEnv = "DELAYBRIDGE_PARTITION_BRIDGE"

// TestMain runs the tests in a network namespace of their own, where they may make devices.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(bridgeEnv) != "" {
		if err := setUp("lo"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	if os.Geteuid() != 0 {
		os.Exit(m.Run()) // All skip themselves.
	}
	os.Exit(enter(m))
}

// enter starts this program again, in a namespace; where that may not be, the tests run here
// and skip themselves. What needs the outer network is made before.
func enter(m *testing.M) int {
	runtime.LockOSThread() // The child is killed when the thread that started it ends.
	dir, err := os.MkdirTemp("", "delaybridge-partition-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary, err := trial.Build(context.Background(), dir)
	if err == nil {
		_, err = service.NATSBinary(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	inside := exec.Command(os.Args[0], os.Args[1:]...) //nolint:gosec,noctx // it is this program
	inside.Env = append(os.Environ(), bridgeEnv+"="+binary)
	inside.Stdin, inside.Stdout, inside.Stderr = os.Stdin, os.Stdout, os.Stderr
	inside.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := inside.Start(); err != nil {
		return m.Run()
	}
	if err := inside.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// site is a network on which a world is made.
type site struct {
	*Network

	context context.Context //nolint:containedctx // it says where servers run, and is the test's
	outside *Host
	groups  map[string][]*Host // by kind, in the order in which they were made
	// slowest is how long it took until all that was due had arrived after a schedule.
	slowest time.Duration
}

// sites counts networks.
var sites atomic.Uint32

func newSite(t *testing.T) *site {
	t.Helper()
	if _, err := os.Stat("/dev/net/tun"); err != nil || os.Getenv(bridgeEnv) == "" {
		t.Skip("a network that can be cut needs root, network namespaces and /dev/net/tun")
	}
	network, outside, err := NewNetwork(byte(sites.Add(1)))
	require.NoError(t, err)
	t.Cleanup(network.Close)
	s := &site{Network: network, outside: outside, groups: map[string][]*Host{}}
	var mu sync.Mutex
	s.context = service.Place(t.Context(), func(kind string) (service.Host, error) {
		mu.Lock()
		defer mu.Unlock()
		h, err := network.NewHost(fmt.Sprintf("%s-%d", kind, len(s.groups[kind])+1))
		if err != nil {
			return service.Host{}, err
		}
		s.groups[kind] = append(s.groups[kind], h)
		return service.Host{IP: h.IP.String(), Do: h.Do}, nil
	})
	return s
}

// all are the hosts in an order that comes again.
func (s *site) all() []*Host {
	hosts := s.Hosts()
	slices.SortFunc(hosts, func(a, b *Host) int { return a.IP.Compare(b.IP) })
	return hosts
}

// hear lets the consumer always hear the broker, so that arrivals are seen when they are.
func (s *site) hear(troubles []Trouble, broker string) []Trouble {
	for _, t := range troubles {
		for _, b := range s.groups[broker] {
			delete(t.Links, Direction{s.outside, b})
			delete(t.Links, Direction{b, s.outside})
		}
	}
	return troubles
}

// play plays troubles and waits until all is out that is due when they are over.
func (s *site) play(ctx context.Context, w *trial.World, troubles []Trouble) error {
	if err := s.Play(ctx, s.hear(troubles, w.Broker.Name())); err != nil {
		return err
	}
	healed := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	err := w.Group.AwaitFailover(ctx)
	// Until a moment after it, and not until now: on a busy machine some of what is due now is always late.
	due := time.Now().Add(time.Second)
	for overdue := 1; overdue > 0 && err == nil; err = errors.Join(err, trial.Sleep(ctx, 200*time.Millisecond)) {
		if w.Database == nil {
			overdue = w.Ledger.Overdue(due)
		} else {
			overdue, err = w.Database.Overdue(ctx, due)
		}
	}
	s.slowest = max(s.slowest, time.Since(healed))
	if err != nil {
		err = fmt.Errorf("after %s: %w", troubles, err)
	}
	return err
}

// world is what random schedules are played on.
type world struct {
	broker string
	// rows has producers write rows, and else use the client.
	rows bool
	// queueKeys are further keys of the queue.
	queueKeys string
	// mode is that of Redis, "sentinel" by default.
	mode string
}

const replicated = "durability: replicas, replicas: 2"

var worlds = []world{
	{broker: "nats"},
	{broker: "kafka", rows: true, queueKeys: replicated},
	{broker: "rabbitmq", queueKeys: replicated},
	{broker: "nats", rows: true},
	{broker: "kafka"},
	{broker: "rabbitmq", rows: true, queueKeys: replicated},
}

// TestRandomPartitions plays schedules that a seed gives, on worlds of two bridges, a Redis
// with two replicas and three Sentinels, a broker, and a database for rows. It checks I1, I2
// and I11, and that all that is due is published soon after a schedule.
func TestRandomPartitions(t *testing.T) {
	t.Parallel()
	t.Log("seed", *seed)
	for i, w := range worlds {
		count := (*schedules + len(worlds) - 1 - i) / len(worlds)
		if count == 0 {
			continue
		}
		t.Run(strings.ReplaceAll(fmt.Sprintf("%s, rows %t, %s", w.broker, w.rows, w.queueKeys), ":", ""), func(t *testing.T) {
			t.Parallel()
			from := rand.New(rand.NewPCG(*seed, uint64(i))) //nolint:gosec // a seed makes it repeatable
			newSite(t).playOn(t, w, count, func(s *site, ctx context.Context, w *trial.World) error {
				troubles := random(from, s.all())
				t.Log(troubles)
				return s.play(ctx, w, troubles)
			})
		})
	}
}

const rate = 50 // messages a second

func (w world) options() trial.Options {
	o := trial.Options{
		Binary: os.Getenv(bridgeEnv), Broker: w.broker, Shards: 2, Mode: cmp.Or(w.mode, "sentinel"), QueueKeys: w.queueKeys, Copies: true,
	}
	if w.rows {
		o.Database = "postgres"
	}
	return o
}

// playOn makes a world, plays so many schedules under load, and compares.
func (s *site) playOn(t *testing.T, w world, count int, next func(*site, context.Context, *trial.World) error) {
	t.Helper()
	if w.rows {
		s.playRows(t, w, count, next)
	} else {
		s.playDirect(t, w, count, next)
	}
}

// playDirect has producers schedule, cancel and reschedule, and wait for all replicas.
func (s *site) playDirect(t *testing.T, w world, count int, next func(*site, context.Context, *trial.World) error) {
	t.Helper()
	o, err := trial.Trial{
		Options: w.options(), Durable: true, Rate: rate, Before: 3 * time.Second, After: time.Second, Impatient: true,
		Happen: func(ctx context.Context, w *trial.World) error {
			return repeat(count, func() error { return next(s, ctx, w) })
		},
	}.Run(s.context)
	require.NoError(t, err)
	t.Logf("%d schedules, %d packets dropped, slowest recovery %s\n%s\n%v", count, s.dropped.Load(), s.slowest, o.Report, o.Answers)
	assert.Zero(t, o.Report.Wrong(), "broken promises: %s, with Redis: %+v\n%s", o.Report, o.Totals, end(o.Log))
	assert.Zero(t, o.Report.Untruthful, "wrong answers: %s", o.Report.Problems)
	assert.Zero(t, o.Totals.Dead, "dead letters")
	assert.Positive(t, o.Answers["schedule: done"], "confirmed")
	if w.queueKeys == replicated {
		assert.Zero(t, o.Report.DuplicatesUnmarked, "of %d", o.Report.Duplicates)
	}
}

// playRows has producers write rows, and cancel and reschedule with rows.
func (s *site) playRows(t *testing.T, w world, count int, next func(*site, context.Context, *trial.World) error) {
	t.Helper()
	loss := trial.RevertsRedis // The writes of the other side.
	if w.queueKeys == replicated {
		loss = trial.LosesNothing
	}
	o, err := trial.OutboxTrial{
		Options: w.options(), Rate: rate, Spread: 3 * time.Second, Seed: *seed,
		Happen: func(ctx context.Context, r *trial.OutboxRun) error {
			return repeat(count, func() error {
				return r.Happen("partition", loss, func() error { return next(s, ctx, r.World) })
			})
		},
	}.Run(s.context)
	require.NoError(t, err)
	t.Logf("%d schedules, %d packets dropped, slowest recovery %s\n%s\n%+v\n%+v", count, s.dropped.Load(), s.slowest, o.Report, o.Tally, o.Verdict)
	v := o.Verdict
	assert.Zero(t, v.Lost+v.Early+v.Resurrected+v.WrongDue+v.Unmarked+v.Unexplained, "broken promises: %v\n%v\n%s", v.Problems, o.Report, end(o.Log))
	assert.Zero(t, o.Report.Unknown, "%s", o.Report)
	assert.Zero(t, o.Tally.Pending+o.Tally.Stored, "rows that nobody finished")
	assert.Zero(t, o.Totals.Dead, "dead letters")
	assert.Positive(t, o.Tally.Committed, "messages")
}

func repeat(count int, do func() error) error {
	for range count {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// end is that of a log.
func end(log string) string { return log[max(0, len(log)-20_000):] }
