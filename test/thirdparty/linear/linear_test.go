package linear

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/faultproxy"
	"github.com/delaybridge/delaybridge/test/trial"
)

var (
	ops  = flag.Int("ops", 3000, "how many calls the callers make, at least; with reshards a quarter")
	seed = flag.Uint64("seed", rand.Uint64(), "of the callers and the faults")
)

// binary is the bridge, which TestMain builds.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "delaybridge-linear-")
	if err == nil {
		binary, err = trial.Build(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// TestFailover has primaries die, or hang until they are replaced, connections break and bridges die and hang, while
// replicas confirm what is called durable. It checks I1 to I4, I10 and I11.
func TestFailover(t *testing.T) {
	t.Parallel()
	inParts(t, *ops, failover)
}

// inParts makes so many calls, in worlds one after the other, each with a seed of its own.
func inParts(t *testing.T, all int, part func(t *testing.T, seed uint64, calls int)) {
	t.Helper()
	const most = 50_000
	for n, left := *seed, all; left > 0; n, left = n+1, left-most {
		t.Run(fmt.Sprint(left, " to go"), func(t *testing.T) { part(t, n, min(left, most)) })
	}
}

func failover(t *testing.T, seed uint64, calls int) {
	t.Helper()
	r := newRun(t, seed, trial.Options{
		Mode: "sentinel", Shards: 8, QueueKeys: "durability: replicas, replicas: 2, history: {count: 10000000, age: 24h}",
	}, delay.Replicas(2))
	r.faults = []fault{{"failover", r.failOver}, {"held back", r.hold}, {"bridge killed", r.killBridge}, {"replies lost", r.swallow}, {"bridge hung", r.hangBridge}, {"cut", r.cut}}
	r.run(t, calls)
	r.judge(t)
}

// TestReshard changes the number of shards meanwhile, again and again. It checks the same.
func TestReshard(t *testing.T) {
	t.Parallel()
	inParts(t, *ops/4, reshard)
}

func reshard(t *testing.T, seed uint64, calls int) {
	t.Helper()
	r := newRun(t, seed, trial.Options{Shards: 4}, delay.Memory)
	r.isForgetful = true // A dropped shard takes along what it remembers.
	r.faults = []fault{{"reshard", r.reshard}, {"bridge killed", r.killBridge}, {"held back", r.hold}, {"reshard", r.reshard}, {"replies lost", r.swallow}, {"bridge hung", r.hangBridge}, {"cut", r.cut}}
	r.run(t, calls)
	r.judge(t)
}

type fault struct {
	name string
	do   func(context.Context) error
}

// window is a time in which a primary may have had what is lost with it.
type window struct{ from, to time.Time }

// run is callers in a world.
type run struct {
	seed        uint64
	world       *trial.World
	clients     []*delay.Client
	link        *link
	faults      []fault
	happened    map[string]int
	windows     []window
	random      *rand.Rand // of the faults
	isForgetful bool
	tally       tally
	isTried     atomic.Bool

	mu        sync.Mutex
	histories map[string]*history
	records   int
}

// limits are how long the clients' calls may take. Near its end, a run gets half of the time that is left.
var limits = []time.Duration{10 * time.Second, 10 * time.Second, time.Second, 300 * time.Millisecond}

func newRun(t *testing.T, seed uint64, o trial.Options, durable delay.Durability) *run {
	t.Helper()
	o.Binary, o.Broker, o.Copies = binary, "nats", true
	w, err := trial.NewWorld(t.Context(), o)
	require.NoError(t, err)
	r := &run{
		seed: seed, world: w, link: &link{proxies: map[string]*faultproxy.Proxy{}}, happened: map[string]int{}, histories: map[string]*history{},
		random: rand.New(rand.NewPCG(seed, 0)), tally: tally{answers: map[string]int{}}, //nolint:gosec // a seed makes the plan repeatable
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("seed", seed)
			for _, b := range w.Bridges() {
				t.Log(b.Log())
			}
		}
		w.Close()
		r.link.close()
	})
	second, err := w.SecondBridge(t.Context())
	require.NoError(t, err)
	require.NoError(t, second.Start(t.Context()))
	for n := range 12 {
		rdb := w.RedisBy(r.link.dial)
		t.Cleanup(func() { _ = rdb.Close() })
		client, err := delay.NewClient(rdb, w.Queue(), delay.WithPrefix(w.Prefix()), delay.WithDurability(durable),
			delay.WithTimeout(limits[n%len(limits)]), delay.WithCoalescing(n%3 > 0))
		require.NoError(t, err)
		r.clients = append(r.clients, client)
	}
	return r
}

// enough is the last of the faults without which no run ends.
const enough = 3

// run has callers at work until they have made so many calls, and the first faults have happened.
func (r *run) run(t *testing.T, least int) {
	t.Helper()
	begin := time.Now()
	reading, stop := context.WithCancel(t.Context())
	defer stop()
	var readers errgroup.Group
	readers.Go(func() error { return r.world.Broker.Consume(reading, r.world.Topic, r.got) })
	working, finished := context.WithCancel(t.Context())
	defer finished()
	var faults, workers errgroup.Group
	faults.Go(func() error {
		defer r.isTried.Store(true) // Whatever happens, the callers end.
		return r.disturb(working)
	})
	faults.Go(func() error { return r.watch(working) })
	for n := range min(250, 50+least/100) {
		workers.Go(func() error {
			random := rand.New(rand.NewPCG(r.seed, uint64(n)+1)) //nolint:gosec // as above
			for i := 0; r.tally.made() < least || !r.isTried.Load(); i++ {
				if err := r.burst(t.Context(), random, fmt.Sprintf("%d-%d", n, i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := workers.Wait()
	finished()
	require.NoError(t, errors.Join(err, faults.Wait()))
	took := time.Since(begin)
	r.drain(t)
	stop()
	require.NoError(t, readers.Wait())
	t.Logf("%d calls about %d ids in %s, %d publications; faults %v, answers %v", r.tally.calls, len(r.histories), took.Round(time.Second), r.records, r.happened, r.tally.answers)
}

// burst works on one id.
func (r *run) burst(ctx context.Context, random *rand.Rand, id string) error {
	h := &history{ref: delay.Ref{ID: id}, calls: make([]call, 0, longest+4)}
	if random.IntN(10) > 0 { // Without a key, what is not found is looked for everywhere.
		h.ref.Key = "k"
	}
	if random.IntN(2) == 0 && h.ref.Key != "" {
		h.ref.Key += id
	}
	r.mu.Lock()
	r.histories[id] = h
	r.mu.Unlock()
	pause := 150
	if random.IntN(12) == 0 { // They meet what was reclaimed, too.
		pause *= 10
	}
	var group errgroup.Group
	for who := range callers {
		n := random.IntN(len(r.clients))
		c := caller{
			who: who, pause: pause, slow: min(3*time.Second/2, limits[n%len(limits)]*2/5), client: r.clients[n], topic: r.world.Topic, of: h, tally: &r.tally,
			random: rand.New(rand.NewPCG(random.Uint64(), 0)), //nolint:gosec // as above
		}
		group.Go(func() error { return c.run(ctx) })
	}
	return group.Wait()
}

func (r *run) got(record trial.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records++
	r.histories[record.ID].got(record)
}

// drain waits until nothing is left, and all that was stored has been read.
func (r *run) drain(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	_, err := r.world.Drained(ctx)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		stored, err := r.world.Broker.Stored(ctx, r.world.Topic)
		r.mu.Lock()
		defer r.mu.Unlock()
		return err == nil && stored == int64(r.records)
	}, time.Minute, 50*time.Millisecond)
}

// disturb has one fault after the other happen, until ctx ends; one that has begun is mended.
func (r *run) disturb(ctx context.Context) error {
	for n, pause := 0, time.Second; ; n++ {
		if trial.Sleep(ctx, pause/2+time.Duration(r.random.Int64N(int64(pause)))) != nil {
			return nil //nolint:nilerr // The callers are done.
		}
		f := r.faults[n%len(r.faults)]
		if err := f.do(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		r.happened[f.name]++
		if n == enough {
			r.isTried.Store(true)
			pause = 3 * time.Second
		}
	}
}

// lag is by how much replicas may be behind.
const lag = 2 * time.Second

// failOver kills the primary, sometimes after it was cut off from its replicas, or has it hang, which takes longer: the
// sentinels tell it after eight seconds that it leads no more.
func (r *run) failOver(ctx context.Context) error {
	from := time.Now().Add(-lag)
	if r.random.IntN(4) == 0 {
		return r.hangPrimary(ctx)
	}
	died, err := r.world.KillPrimary(ctx, 0, time.Duration(r.random.IntN(2))*300*time.Millisecond)
	if err != nil { // A busy machine: the sentinels did not answer in time.
		r.happened["failover not made"]++
		return r.world.Group.AwaitFailover(ctx)
	}
	r.note(window{from, died.Known})
	return died.Repair(ctx)
}

// hangPrimary has the primary hang for about as long as the sentinels take to replace it. It takes writes again before
// it hears of that, and a replica that follows it still confirms them.
func (r *run) hangPrimary(ctx context.Context) error {
	from := time.Now().Add(-lag)
	hang := time.Second + time.Duration(r.random.Int64N(int64(2*time.Second)))
	if err := r.world.HangPrimary(ctx, 0, hang); err != nil {
		r.happened["primary not hung"]++ // A busy machine: see failOver.
	} else {
		r.happened["primary hung"]++
	}
	err := r.world.Group.AwaitFailover(ctx)
	r.note(window{from, time.Now()})
	return err
}

func (r *run) note(w window) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.windows = append(r.windows, w)
}

// watch notes when a primary was replaced, until ctx ends: on a busy machine the sentinels replace one that lives, too,
// and it goes on alone for a while.
func (r *run) watch(ctx context.Context) error {
	if r.world.Group == nil {
		return nil
	}
	const twice = 10 * time.Second // In less, the sentinels do not replace the next one.
	last := ""
	for whole := time.Now(); trial.Sleep(ctx, time.Second/4) == nil; {
		err := r.world.Group.AwaitFailover(ctx)
		primary, failure := r.world.Group.Primary(ctx, r.world.ShardKey(0))
		now := time.Now()
		if ctx.Err() != nil { // Whatever is under way counts.
			r.note(window{whole.Add(-lag), now})
			return nil //nolint:nilerr // The callers are done.
		}
		if err := errors.Join(err, failure); err != nil {
			continue // They do not agree, or did not answer in time.
		}
		if last != "" && last != primary || now.Sub(whole) > twice {
			r.note(window{whole.Add(-lag), now})
		}
		whole, last = now, primary
	}
	return nil
}

func (r *run) cut(context.Context) error {
	r.link.each((*faultproxy.Proxy).Cut)
	return nil
}

// swallow loses replies for a while, and then the connections that waited for them.
func (r *run) swallow(ctx context.Context) error {
	r.link.each(func(p *faultproxy.Proxy) { p.SwallowReplies(true) })
	err := trial.Sleep(ctx, time.Duration(100+r.random.IntN(400))*time.Millisecond)
	r.link.each(func(p *faultproxy.Proxy) { p.SwallowReplies(false) })
	r.link.each((*faultproxy.Proxy).Cut)
	return err
}

// hold lets nothing pass for longer than callers wait for a run; then it arrives, too late.
func (r *run) hold(ctx context.Context) error {
	r.link.each(func(p *faultproxy.Proxy) { p.Blackhole(true) })
	err := trial.Sleep(ctx, 3*time.Second)
	r.link.each(func(p *faultproxy.Proxy) { p.Blackhole(false) })
	return err
}

func (r *run) bridge() *trial.Bridge {
	bridges := r.world.Bridges()
	return bridges[r.random.IntN(len(bridges))]
}

// killBridge has a bridge die while the broker hangs, so that what it has in flight may be out.
func (r *run) killBridge(ctx context.Context) error {
	b, broker := r.bridge(), r.world.Broker.Server()
	err := errors.Join(broker.Pause(), trial.Sleep(ctx, time.Second/2))
	return errors.Join(err, b.Kill(), broker.Resume(), b.Start(ctx))
}

// hangBridge has a bridge hang for longer than its lease.
func (r *run) hangBridge(ctx context.Context) error {
	b := r.bridge()
	return errors.Join(b.Pause(), trial.Sleep(ctx, 7*time.Second), b.Resume())
}

func (r *run) reshard(ctx context.Context) error {
	shards := strconv.Itoa(1 << r.random.IntN(7))
	out, err := exec.CommandContext(ctx, binary, "shards", "set", shards, "--config", r.world.Bridge.Config, "--queue", r.world.Queue()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// judge looks for an order of each id's calls.
func (r *run) judge(t *testing.T) {
	t.Helper()
	begin := time.Now()
	var (
		mu      sync.Mutex
		found   = map[porcupine.CheckResult]int{}
		group   errgroup.Group
		excused atomic.Int64
	)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, id := range slices.Sorted(maps.Keys(r.histories)) {
		h := r.histories[id]
		group.Go(func() error {
			excused.Add(int64(r.complete(h)))
			result, info := check(h.calls, time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if found[result]++; result != porcupine.Ok && found[result] <= 5 {
				path := filepath.Join(os.TempDir(), "linear-"+id+".html")
				err := porcupine.VisualizePath(model, info, path)
				t.Errorf("%s: %s; its picture is in %s (%v)\n%s", h.ref, result, path, err, tell(h.calls))
			}
			return nil
		})
	}
	_ = group.Wait()
	t.Logf("checked in %s: %v; %d calls were excused, in %d windows", time.Since(begin).Round(time.Second), found, excused.Load(), len(r.windows))
	assert.Equal(t, len(r.histories), found[porcupine.Ok])
	copies, unmarked, early := r.copies()
	t.Logf("%d copies", copies)
	assert.Zero(t, unmarked, "copies with the same attempt")
	assert.Zero(t, early, "published before they were due")
	r.control(t)
}

// complete adds the end to a history, and takes out what tells nothing; it returns how much it was.
func (r *run) complete(h *history) (excused int) {
	last := time.Now()
	h.calls = slices.DeleteFunc(h.calls, func(c call) bool {
		isRead := c.answer != done && c.answer != maybe && c.answer != unknown
		isExcused := isRead && c.answer != refused && r.isInTrouble(&c)
		if isExcused {
			excused++
		}
		return c.answer == refused || isExcused
	})
	for i := range h.calls {
		c := &h.calls[i]
		c.isForgetful = r.isForgetful
		if c.verb < claim && !c.isSure && r.isInTrouble(c) {
			c.isLoose = true
			excused++
		}
		if c.verb == settle {
			c.to = last
		}
	}
	last = last.Add(time.Nanosecond)
	h.calls = append(h.calls, call{verb: over, answer: done, who: callers, from: last, to: last})
	return excused
}

// copies counts what was published more than once; a message that a repeated schedule may have created again is not
// told from its copies.
func (r *run) copies() (copies, unmarked, early int) {
	for _, h := range r.histories {
		seen := map[[2]int]int{} // by life, and by life and attempt
		for _, c := range h.calls {
			switch {
			case c.verb != claim:
			case c.to.Before(c.from):
				early++
			default:
				if seen[[2]int{int(c.life)}]++; seen[[2]int{int(c.life)}] > 1 {
					copies++
				}
				isAgain := slices.ContainsFunc(h.calls, func(other call) bool { return other.life == c.life && other.isAgain })
				if seen[[2]int{int(c.life), c.attempt}]++; seen[[2]int{int(c.life), c.attempt}] > 1 && !isAgain {
					unmarked++
				}
			}
		}
	}
	return copies, unmarked, early
}

// isInTrouble reports whether what a call did or saw may be lost with a primary.
func (r *run) isInTrouble(c *call) bool {
	return slices.ContainsFunc(r.windows, func(w window) bool { return !c.from.After(w.to) && !c.to.Before(w.from) })
}

// tell is a history to be read.
func tell(calls []call) string {
	var text strings.Builder
	const clock = "05.000000"
	for _, c := range slices.SortedFunc(slices.Values(calls), func(a, b call) int { return a.from.Compare(b.from) }) {
		_, _ = fmt.Fprintf(&text, "  %s to %s, %d: %s\n", c.from.UTC().Format(clock), c.to.UTC().Format(clock), c.who, &c)
	}
	return text.String()
}

// link is what the callers' connections go through, to each server by a proxy of its own.
type link struct {
	mu      sync.Mutex
	proxies map[string]*faultproxy.Proxy
}

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	proxy := l.proxies[addr]
	if proxy == nil {
		var err error
		if proxy, err = faultproxy.New(context.WithoutCancel(ctx), addr); err != nil {
			l.mu.Unlock()
			return nil, err
		}
		l.proxies[addr] = proxy
	}
	l.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, proxy.Addr())
}

func (l *link) each(do func(*faultproxy.Proxy)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.proxies {
		do(p)
	}
}

func (l *link) close() { l.each((*faultproxy.Proxy).Close) }
