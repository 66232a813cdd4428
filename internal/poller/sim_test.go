package poller

import (
	"cmp"
	"container/heap"
	"errors"
	"flag"
	"fmt"
	"hash"
	"hash/fnv"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/poller/batch"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/window"
)

var (
	simSeed  = flag.Uint64("seed", 0, "the one seed to simulate, with its trace; 0 is as many as -seeds says")
	simSeeds = flag.Int("seeds", 40, "how many seeds to simulate")
	simFirst = flag.Uint64("first", 1, "the first of these seeds")
)

// TestSimulation runs the machines of a queue, of several instances, against a store and a
// broker in memory. All that happens is an event of one queue, ordered by time, and one
// goroutine takes them in turn; what is left to chance comes from a seed. So a seed always
// tells the same story: -seed N -v prints it. There are faults at every edge: calls that are
// lost before or after they were executed, or executed late; instances that die, come
// back, drain, or are both in charge; routes that are full, missing, slow, nack or hang; a
// broker and a Redis that are down; clocks that are set; pauses and rates. It checks I1,
// I3, I6, I7, I9, I13 and I15, and that no machine turns without end.
func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		simulate(t, *simSeed, t.Logf)
		return
	}
	met := map[string]int{}
	for i := range uint64(*simSeeds) {
		seed := *simFirst + i
		pairs, _ := simulate(t, seed, nil)
		for pair, n := range pairs {
			met[pair] += n
		}
		if t.Failed() {
			return
		}
	}
	for i, a := range conditions {
		for _, b := range conditions[i+1:] {
			if met[a+" × "+b] == 0 {
				t.Errorf("%s and %s never met", a, b)
			}
		}
	}
}

// TestSimulationReplays has a seed tell its story twice.
func TestSimulationReplays(t *testing.T) {
	for seed := range uint64(3) {
		_, first := simulate(t, seed+1, nil)
		_, second := simulate(t, seed+1, nil)
		require.Equal(t, first, second)
	}
}

// unraced skips what takes ten times as long with the race detector and starts no goroutines
// that other tests do not start.
func unraced(t *testing.T) {
	t.Helper()
	if testenv.IsRaced {
		t.Skip("runs without -race: make test, make quick")
	}
}

func simulate(t *testing.T, seed uint64, log func(string, ...any)) (pairs map[string]int, trace string) {
	t.Helper()
	unraced(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, log)
		w.live()
		w.check()
		if t.Failed() { // Which ends the test at once.
			t.Logf("seed %d: run it again with -run TestSimulation -v -seed %d", seed, seed)
		}
		pairs, trace = w.pairs, fmt.Sprintf("%016x", w.hash.Sum64())
	})
	if log != nil {
		log("seed %d: trace %s", seed, trace)
	}
	return pairs, trace
}

// conditions are what may be the matter at a time.
var conditions = []string{"hang", "full", "missing", "nack", "slow", "broker down", "redis down", "redis flaky", "clock", "pause", "rate", "drain", "crash", "two holders", "stop", "no replicas", "failover"}

// ofTopics are those of the broker's parts.
var ofTopics = conditions[:5]

const (
	simShards = 2
	simFor    = 4 * time.Minute  // with faults
	simHealed = 30 * time.Minute // at the most, until all is out
	simSettle = time.Minute      // until all is out that is due
	simCalm   = 20 * time.Second // until healing is over
	simLate   = time.Second      // may pass before a shard looks for what came back, which is half of the longest sleep
	simPrompt = 3 * time.Second  // may pass before a message is with the broker, where only other topics ail
	turnsMost = 100              // of one machine in one instant
	// claimsMost is how many claims of one machine in a second need no reason; for each
	// message that one of them takes there may be a few more.
	claimsMost     = 80
	claimsAMessage = 4
)

// world is all that is simulated.
type world struct {
	t      *testing.T
	log    func(string, ...any)
	random *rand.Rand
	began  time.Time
	events eventQueue
	number int
	hash   hash.Hash64
	pairs  map[string]int

	active  map[string]int // conditions
	policy  Policy
	paused  map[string]time.Time
	stores  []*fakeStore
	windows int
	isSink  bool // only topics ail
	isHeavy bool // messages weigh much: the window has room for few
	isHot   bool // many messages of few Keys come at once
	slots   int  // for parked messages

	promises map[string]*promise
	order    []*promise
	stored   []storedCopy
	modes    map[string]string // of topics
	isDown   bool              // the broker
	isAway   bool              // Redis
	isFlaky  bool
	isAlone  bool          // Redis has no replica: nothing is confirmed
	isFading bool          // what is settled, a failover may take back
	skewedAt time.Duration // when Redis' clock was set last
	isHealed bool
	changes  [simShards][]time.Duration // when a shard's holder changed
	holders  [simShards]string

	instances []*simInstance
	made      int
}

// promise is a message that was accepted.
type promise struct {
	id, key, topic string
	shard          int
	due            time.Time
	at             time.Duration // accepted
	claimed        time.Duration // first
	cancelled      bool
	refused        bool                // by itself
	faults         int                 // that may have made copies
	handed         map[int]sinks.Class // how each attempt ended that was handed over
}

// storedCopy is a copy that the broker has stored of a message.
type storedCopy struct {
	id      string
	attempt int
	at      time.Duration
}

type event struct {
	at     time.Duration
	number int
	name   string
	do     func()
}

type eventQueue []event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].at, q[j].at), cmp.Compare(q[i].number, q[j].number)) < 0
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements [heap.Interface].
func (q *eventQueue) Push(x any) { *q = append(*q, x.(event)) } //nolint:forcetypeassert // only events are pushed

// Pop implements [heap.Interface].
func (q *eventQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func newWorld(t *testing.T, seed uint64, log func(string, ...any)) *world {
	t.Helper()
	w := &world{
		t: t, log: log, random: rand.New(rand.NewPCG(seed, seed)), began: time.Now(), hash: fnv.New64a(), pairs: map[string]int{},
		active: map[string]int{}, promises: map[string]*promise{}, modes: map[string]string{}, paused: map[string]time.Time{}, skewedAt: -time.Hour,
	}
	w.policy = Policy{Retry: Retry{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Attempts: 1 << 20}, ParkPatience: time.Hour}
	w.policy.setDefaults()
	w.isSink, w.isHeavy, w.isHot = w.chance(6), w.chance(3), w.chance(3)
	if w.slots = message.MaxSlot; w.chance(4) {
		w.slots = 1 + w.random.IntN(2)
	}
	for range simShards {
		w.stores = append(w.stores, newFakeStore())
	}
	return w
}

func (w *world) now() time.Duration { return time.Since(w.began) }

// after has something happen.
func (w *world) after(d time.Duration, name string, do func()) {
	w.number++
	heap.Push(&w.events, event{w.now() + max(0, d), w.number, name, do})
}

// run lets things happen until then.
func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= until && !w.t.Failed() {
		e := heap.Pop(&w.events).(event) //nolint:forcetypeassert // see Push
		time.Sleep(e.at - w.now())       //nolint:forbidigo // the bubble's clock, which nobody else moves
		w.tell(e.name)
		e.do()
	}
	time.Sleep(until - w.now()) //nolint:forbidigo // as above
}

// tell writes a line of the story.
func (w *world) tell(line string) {
	if line == "" {
		return
	}
	_, _ = fmt.Fprintf(w.hash, "%d %s\n", w.now(), line) // It never fails.
	if w.log != nil {
		w.log("%12s %s", w.now(), line)
	}
}

func (w *world) chance(oneIn int) bool { return w.random.IntN(oneIn) == 0 }

// between is a duration, small ones as often as large ones.
func (w *world) between(least, most time.Duration) time.Duration {
	d := least
	for d < most/2 && w.random.IntN(3) > 0 {
		d *= 2
	}
	return min(most, d+time.Duration(w.random.Int64N(int64(d)+1)))
}

var simTopics = []string{"a", "b", "c", "d"}

// live is the whole story.
func (w *world) live() {
	for range 1 + w.random.IntN(2) {
		w.start()
	}
	w.produce()
	w.trouble()
	if !w.isSink && w.chance(2) {
		w.after(simFor-w.between(time.Millisecond, 4*time.Second), "clock set back", func() { w.skew(-time.Duration(w.random.IntN(600)) * time.Second) })
	}
	w.run(simFor)
	w.heal()
	w.run(w.now() + simSettle)
	w.overdue()
	w.skew(0)
	for until := w.now() + simHealed; w.now() < until && !w.isEmpty() && !w.t.Failed(); {
		w.run(w.now() + 10*time.Second)
	}
	for _, in := range slices.Clone(w.instances) {
		in.drain(0)
	}
	w.run(w.now() + time.Minute)
}

// isEmpty reports whether nothing waits and nothing is in flight.
func (w *world) isEmpty() bool {
	for _, f := range w.stores {
		if len(f.waiting)+len(f.claims) > 0 {
			return false
		}
	}
	return true
}

// produce accepts a message now and then, and cancels some.
func (w *world) produce() {
	if w.now() > simFor {
		return
	}
	n := 1 + w.random.IntN(6)
	if w.isHot && w.chance(8) {
		n *= 10
	}
	for range n {
		w.made++
		p := &promise{id: fmt.Sprintf("m%04d", w.made), topic: simTopics[w.random.IntN(len(simTopics))], at: w.now(), handed: map[int]sinks.Class{}}
		p.shard = w.random.IntN(simShards)
		if w.random.IntN(4) > 0 {
			p.key = fmt.Sprintf("k%d-%d", p.shard, w.random.IntN(3))
		}
		store := w.stores[p.shard]
		p.due = store.now().Add(time.Duration(w.random.IntN(4000)-1000) * time.Millisecond)
		m := keyed(p.id, p.key, p.due)
		m.Topic, m.ScheduledAt = p.topic, store.now()
		if w.isHeavy {
			m.Body = make([]byte, w.random.IntN(16<<10))
		}
		w.promises[p.id] = p
		w.order = append(w.order, p)
		store.add(m)
		w.tell(fmt.Sprintf("schedule %s key %s topic %s", p.id, p.key, p.topic))
		w.hint(p.shard)
		if w.chance(10) {
			w.after(w.between(time.Millisecond, 4*time.Second), "cancel "+p.id, func() { w.cancel(p) })
		}
	}
	w.after(w.between(50*time.Millisecond, 2*time.Second), "", w.produce)
}

func (w *world) hint(shard int) {
	if w.chance(5) {
		return // It may be lost.
	}
	for _, in := range w.instances {
		if d := in.shards[shard]; d != nil {
			w.after(w.between(100*time.Microsecond, 10*time.Millisecond), "", func() {
				if !d.isGone && d.shard.Hears(d.now()) {
					d.shard.Hinted()
					d.step()
				}
			})
		}
	}
}

func (w *world) cancel(p *promise) {
	f := w.stores[p.shard]
	n := len(f.waiting)
	f.waiting = slices.DeleteFunc(f.waiting, func(m message.ClaimedMessage) bool { return m.ID == p.id })
	p.cancelled = len(f.waiting) < n
}

// during makes something the matter for a while.
func (w *world) during(name string, lasts time.Duration, begin, end func()) {
	w.tell("begin " + name)
	w.active[name]++
	begin()
	w.after(lasts, "end "+name, func() {
		w.active[name]--
		end()
	})
}

// trouble begins one now and then.
func (w *world) trouble() {
	if w.now() > simFor {
		return
	}
	topic, names := simTopics[w.random.IntN(len(simTopics)-1)], conditions // One is always well.
	if w.isSink {
		names = ofTopics
	}
	lasts := w.between(200*time.Millisecond, 40*time.Second)
	mode := func(name string) {
		w.during(name, lasts, func() { w.modes[topic] = name }, func() { delete(w.modes, topic) })
	}
	switch name := names[w.random.IntN(len(names))]; name {
	case "hang", "full", "missing", "nack", "slow":
		mode(name)
	case "broker down":
		w.during(name, lasts, func() { w.isDown = true }, func() { w.isDown = false })
	case "redis down":
		w.during(name, min(lasts, 20*time.Second), func() { w.isAway = true }, func() { w.isAway = false })
	case "redis flaky":
		w.during(name, lasts, func() { w.isFlaky = true }, func() { w.isFlaky = false })
	case "clock":
		by := time.Duration(w.random.IntN(1200)-600) * time.Second
		w.during(name, lasts, func() { w.skew(by) }, func() { w.skew(0) })
	case "pause":
		if w.chance(3) {
			topic = ""
		}
		w.during(name, lasts, func() { w.pause(topic, true) }, func() { w.pause(topic, false) })
	case "rate":
		w.during(name, lasts, func() {
			w.rate(Rates{Messages: w.random.IntN(40), Topics: map[string]int{topic: 1 + w.random.IntN(20)}})
		},
			func() { w.rate(Rates{}) })
	case "drain":
		w.during(name, min(lasts, 5*time.Second), func() { w.anyone(func(in *simInstance) { in.drain(10 * time.Second) }) }, w.start)
	case "crash":
		w.during(name, min(lasts, 5*time.Second), func() { w.anyone((*simInstance).crash) }, w.start)
	case "two holders":
		w.during(name, lasts, w.start, func() {})
	case "stop": // A process that runs no more, and then goes on, as after SIGSTOP. Mostly its lease ends meanwhile.
		lasts = w.between(3*time.Second, 40*time.Second)
		w.during(name, lasts, func() {
			w.anyone(func(in *simInstance) { in.stopped = max(in.stopped, w.now()+lasts) })
			w.start()
		}, func() {})
	case "no replicas":
		w.during(name, lasts, func() { w.isAlone = true }, func() { w.isAlone = false })
	case "failover":
		w.during(name, lasts, func() { w.isFading = true }, func() { w.isFading = false })
	}
	w.after(w.between(50*time.Millisecond, 20*time.Second), "", w.trouble)
}

func (w *world) skew(by time.Duration) {
	if w.isHealed && by == 0 && w.now() < simFor+simSettle {
		return // It ends later.
	}
	w.skewedAt = w.now()
	for _, f := range w.stores {
		f.skew = by
	}
}

func (w *world) pause(topic string, isPaused bool) {
	if isPaused {
		w.paused[topic] = w.stores[0].now()
	} else {
		delete(w.paused, topic)
	}
	w.everyone(func(in *simInstance) { in.pause(maps.Clone(w.paused)) })
}

func (w *world) rate(rates Rates) {
	w.policy.Rates = rates
	w.everyone(func(in *simInstance) { in.follow(w.policy) })
}

func (w *world) anyone(do func(*simInstance)) {
	if n := len(w.instances); n > 0 {
		do(w.instances[w.random.IntN(n)])
	}
}

func (w *world) everyone(do func(*simInstance)) {
	for _, in := range w.instances {
		do(in)
	}
}

// overdue looks for messages that are due, by whatever clock Redis has now.
func (w *world) overdue() {
	for i, f := range w.stores {
		for _, m := range f.waiting {
			if at := waitingSince(&m); f.now().Sub(at) > simSettle {
				w.t.Errorf("I7: %s of shard %d waits in slot %d, due for %s, %s after the trouble was over", m.ID, i, slotOf(&m), f.now().Sub(at), simSettle)
			}
		}
	}
}

// heal ends all trouble but that of clocks: what is left in the queue of events to end it
// changes nothing.
func (w *world) heal() {
	w.tell("healed")
	w.isHealed, w.isDown, w.isAway, w.isFlaky, w.isAlone, w.isFading = true, false, false, false, false, false
	clear(w.modes)
	w.rate(Rates{})
	clear(w.paused)
	w.everyone(func(in *simInstance) { in.pause(map[string]time.Time{}) })
	if len(w.instances) == 0 {
		w.start()
	}
}

// simInstance is one process with its own poller's parts.
type simInstance struct {
	w       *world
	name    string
	queue   *Queue
	shards  [simShards]*simDriver
	stopped time.Duration // nothing of it runs before
	// observer is a share of the window that is never used.
	observer *window.Share
}

// start begins an instance that polls all shards.
func (w *world) start() {
	if len(w.instances) >= 3 {
		return
	}
	w.windows++
	name := fmt.Sprint("i", w.windows)
	in := &simInstance{w: w, name: name}
	random := func() float64 { return w.random.Float64() }
	size := 1 + w.random.IntN(20)
	if w.isSink { // With fewer than the window takes, one that hangs could not be told from a slow broker.
		size = 300
	}
	config := Config{
		Queue: "q", Instance: name, Shards: []int{0, 1}, Store: func(int) Store { return nil },
		Sink:   Sink{Sink: simRoutes{}, Name: "s", Window: window.NewSeeded(random)},
		Claims: Claims{Batch: size, InFlight: 1 + w.random.IntN(4), Durable: w.chance(4)},
		Logger: slog.New(slog.NewTextHandler(storyWriter{w}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})),
	}
	config.Policy = w.policy
	var err error
	in.queue, err = newSimulated(config, random)
	require.NoError(w.t, err)
	in.queue.slots = w.slots
	in.pause(maps.Clone(w.paused))
	in.accrue()
	in.observer = config.Sink.Window.Join("other", func() {})
	w.after(time.Second, "", in.look)
	w.instances = append(w.instances, in)
	w.tell("start " + name)
	for i := range in.shards {
		d := &simDriver{w: w, in: in, index: i, store: w.stores[i], changed: make(chan struct{}, 1), claimed: map[string]bool{}, claim: map[string]message.ClaimToken{}, back: map[string]bool{}, doubted: map[message.ClaimToken]bool{}}
		d.shard = NewShard(in.queue, i, 1, d, Wakes{
			Outcomes: d.changed,
			Room: func() {
				d.wokenAt = w.now()
				d.later("", func() { d.shard.Woken(d.now()) })
			},
			Rates: func() { d.later("", func() { d.shard.Allowed() }) },
		})
		in.shards[i] = d
		d.later("", func() {})
	}
}

func (in *simInstance) pause(topics map[string]time.Time) {
	in.queue.Pause(topics)
	in.turn()
}

func (in *simInstance) follow(policy Policy) {
	in.queue.Follow(policy)
	in.turn()
}

// accrue has the part of an instance come in, as the goroutine of its rates does.
func (in *simInstance) accrue() {
	if in.isGone() {
		return
	}
	in.w.after(in.queue.Rates().Step(), "", in.accrue)
}

// look judges now and then what is kept: of the window, and in flight.
func (in *simInstance) look() {
	if in.isGone() {
		return
	}
	in.w.after(time.Second, "", in.look)
	if in.w.now() > in.stopped+time.Second {
		in.keepsRoom()
		for _, d := range in.shards {
			d.keepsBehind()
		}
	}
}

// keepsRoom judges that nothing is kept of the window while nothing is in flight, but for claims that were
// asked for a moment ago. Else a Redis that hangs would keep others from the sink.
func (in *simInstance) keepsRoom() {
	win, now := in.queue.config.Sink.Window, in.w.now()
	if messages, _ := win.InFlight(); messages > 0 || win.IsDown() || win.IsCrowded() {
		return
	}
	for _, d := range in.shards {
		if !d.isGone && now < max(d.askedAt, d.wokenAt)+2*reservedFor {
			return
		}
	}
	room, _, _ := in.observer.Reserve(1<<20, false)
	in.observer.Hold(0, 0, true)
	if most, _ := win.Limit(); room < most {
		in.w.t.Errorf("I8: %s: %s has room for %d messages of %d, and nothing is in flight", now, in.name, room, most)
	}
}

// keepsBehind judges that what is behind messages of its Key is not kept in flight, once its route is closed: it would keep
// other routes from being claimed.
func (d *simDriver) keepsBehind() {
	was := d.behind
	d.behind = map[string]bool{}
	for _, b := range d.shard.flight.Live() {
		for _, i := range b.Indices(batch.Behind) {
			m := &b.Messages[i].Message
			if d.isGone || d.doubted[b.Token] || b.From != nil || !d.shard.routes.IsClosed(m) {
				continue
			}
			one := b.Token.String() + " " + m.ID
			if d.behind[one] = true; was[one] {
				d.w.t.Errorf("I8: %s: %s stays in flight behind others, and its route is closed", d.w.now(), m.ID)
				return
			}
		}
	}
}

func (in *simInstance) isGone() bool {
	return in.shards[0] != nil && !slices.ContainsFunc(in.shards[:], func(d *simDriver) bool { return !d.isGone })
}

func (in *simInstance) turn() {
	for _, d := range in.shards {
		if d != nil {
			d.later("", func() {})
		}
	}
}

// crash ends an instance as kill -9 does.
func (in *simInstance) crash() {
	in.leave()
	for _, d := range in.shards {
		d.isGone = true
		for _, b := range d.shard.flight.Live() {
			for i := range b.Messages {
				in.w.promises[b.Messages[i].ID].faults++
			}
		}
	}
}

// drain ends an instance as SIGTERM does. What has not ended after the budget is cut.
func (in *simInstance) drain(budget time.Duration) {
	in.leave()
	for _, d := range in.shards {
		d.isDraining = true
		d.later("", func() {})
		if budget > 0 {
			in.w.after(budget, "cut "+in.name, d.cut)
		}
	}
}

// leave takes the instance out of those that live.
func (in *simInstance) leave() {
	in.w.tell("leave " + in.name)
	in.w.instances = slices.DeleteFunc(in.w.instances, func(other *simInstance) bool { return other == in })
}

// storyWriter makes log lines a part of the story.
type storyWriter struct{ w *world }

func (s storyWriter) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.Contains(text, "msg=panic") {
		s.w.t.Error(text)
	}
	if s.w.log != nil {
		s.w.log("%12s   %s", s.w.now(), text)
	}
	return len(line), nil
}

// simRoutes is what a shard asks a sink for by itself.
type simRoutes struct{ sinks.Sink }

func (simRoutes) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }

// simDriver drives a shard by the world's events.
type simDriver struct {
	w          *world
	in         *simInstance
	index      int
	shard      *Shard
	store      *fakeStore
	changed    chan struct{}
	isGone     bool // it died, or has ended
	isDraining bool
	isCut      bool
	hasDrained bool                          // it has been told, and publishes no more
	claim      map[string]message.ClaimToken // of messages, with which they were claimed last
	doubted    map[message.ClaimToken]bool   // claims that must be confirmed, and are not
	steps      int                           // planned ones, by which those are known that came to nothing
	turns      int                           // in this instant
	turnsAt    time.Duration
	claims     int             // in this second
	claimed    map[string]bool // by these
	claimsAt   time.Duration
	underWay   []func() // ends what is with the sink
	asked      message.ClaimToken
	askedAt    time.Duration   // when that claim was made first
	wokenAt    time.Duration   // when there was room last
	back       map[string]bool // messages that it has put back to what is due
	behind     map[string]bool // what was behind others at the last look, though its route was closed
}

func (d *simDriver) now() time.Duration { return d.in.queue.Now() }

// later tells the shard something in a moment.
func (d *simDriver) later(name string, do func()) {
	d.runs(0, name, func() {
		if !d.isGone {
			do()
			d.step()
		}
	})
}

// runs has the process do something, once it is not stopped.
func (d *simDriver) runs(after time.Duration, name string, do func()) {
	d.w.after(after, name, func() {
		if left := d.in.stopped - d.w.now(); left > 0 {
			d.runs(left, "", do)
			return
		}
		do()
	})
}

func (d *simDriver) step() {
	if d.isGone {
		return
	}
	drainSignal(d.changed)
	now := d.now()
	if now != d.turnsAt {
		d.turns, d.turnsAt = 0, now
	}
	if d.turns++; d.turns > turnsMost {
		d.w.t.Errorf("%s: shard %d of %s turns without end", d.w.now(), d.index, d.in.name)
		d.isGone = true
		return
	}
	if d.isCut {
		d.shard.Cut()
	}
	if d.isDraining {
		d.shard.Drain()
		d.hasDrained = true
	}
	next, more := d.shard.Step(now)
	if !more {
		d.ended()
		return
	}
	d.sleeps(now, next)
	d.steps++
	number := d.steps
	d.runs(next-now, "", func() {
		if number == d.steps {
			d.step()
		}
	})
}

// sleeps judges that the shard does not sleep past what is due, as far as it has put it back itself, where nothing is
// in its way.
func (d *simDriver) sleeps(now, until time.Duration) {
	p := d.shard.planner
	if len(d.back) == 0 || p.isUnderWay || p.pending != nil || p.isDraining || p.isOver || !p.mine || !p.takes || p.isBlocked ||
		until < now+10*time.Millisecond || p.quietUntil > now || p.closedUntil() > now {
		return
	}
	was := d.back
	d.back = map[string]bool{}
	for i := range d.store.waiting {
		m := &d.store.waiting[i]
		if !was[m.ID] || slotOf(m) != 0 {
			continue
		}
		d.back[m.ID] = true
		if at := waitingSince(m); !at.After(d.store.now()) && !at.After(p.redisClock(now)) {
			d.w.t.Errorf("I7: %s: shard %d of %s sleeps for %s, and %s is due, which it has put back", d.w.now(), d.index, d.in.name, until-now, m.ID)
			return
		}
	}
}

// ended checks what a shard has left behind that has drained.
func (d *simDriver) ended() {
	d.isGone = true
	d.shard.Leave()
	if !d.w.isAway {
		_ = d.store.HandOver(d.w.t.Context(), d.in.name)
	}
	s := d.shard
	if live, chains := len(s.flight.Live()), s.flight.Chains(); live+chains != 0 || s.flight.IsReturning() {
		d.w.t.Errorf("shard %d of %s has ended with %d batches, %d chains, returning: %t", d.index, d.in.name, live, chains, s.flight.IsReturning())
	}
	for _, r := range s.routes.All() {
		if pending, out, hung := r.InFlight(); pending != 0 || out != 0 || hung != 0 {
			d.w.t.Errorf("the route of slot %d of %s has ended with %d on their way to it, %d out, %d hung", r.Slot(), d.in.name, pending, out, hung)
		}
	}
	if messages, bytes := s.queue.config.Sink.Window.InFlight(); messages+bytes != 0 && !slices.ContainsFunc(d.in.shards[:], func(o *simDriver) bool { return !o.isGone }) {
		d.w.t.Errorf("%s has ended with %d messages in its window", d.in.name, messages)
	}
}

// cut ends what is being published.
func (d *simDriver) cut() {
	d.isCut = true
	for _, end := range d.underWay {
		end()
	}
	d.underWay = nil
}

var errLost = errors.New("no answer")

// request has a call executed, and answered: or not, or late.
func (d *simDriver) request(name string, execute func(), answer func(now time.Duration, err error)) {
	w := d.w
	name = fmt.Sprintf("%s %s/%d", name, d.in.name, d.index)
	run := func() {
		if w.isAway {
			return
		}
		execute()
	}
	tell := func(err error) func() {
		return func() {
			if !d.isGone {
				answer(d.now(), err)
				d.step()
			}
		}
	}
	there, back := w.between(100*time.Microsecond, 2*time.Millisecond), w.between(100*time.Microsecond, 2*time.Millisecond)
	const timeout = 5 * time.Second
	fate := 99
	if w.isFlaky {
		fate = w.random.IntN(12)
	}
	switch {
	case w.isAway || fate == 0:
		d.runs(w.between(time.Millisecond, 100*time.Millisecond), name+" is not sent", tell(errLost))
	case fate == 1:
		w.after(there, name+", whose answer is lost", run)
		d.runs(there+w.between(time.Millisecond, timeout), "", tell(errLost))
	case fate == 2:
		d.runs(there+w.between(time.Millisecond, timeout), "", tell(errLost))
		w.after(there+w.between(time.Millisecond, 2*timeout), name+" late", run)
	default:
		w.after(there, name, func() {
			if w.isAway {
				d.runs(back, "", tell(errLost))
				return
			}
			execute()
			d.runs(back, "", tell(nil))
		})
	}
}

// count looks whether claims are made for nothing.
func (d *simDriver) count() {
	if second := d.now().Truncate(time.Second); second != d.claimsAt {
		d.claims, d.claimed, d.claimsAt = 0, map[string]bool{}, second
	}
	if d.claims++; d.claims > claimsMost+claimsAMessage*len(d.claimed) {
		d.w.t.Errorf("I9: shard %d of %s has made %d claims for %d messages in a second, at %s", d.index, d.in.name, d.claims, len(d.claimed), d.w.now())
		d.isGone = true
	}
}

func (d *simDriver) Claim(r message.ClaimRequest) {
	var claim message.Claim
	d.count()
	if d.asked != r.Token {
		d.asked, d.askedAt = r.Token, d.w.now()
	}
	d.request(fmt.Sprintf("claim max %d slot %d live %d", r.Max, r.Slot, len(r.Live)), func() {
		claim = d.store.claim(r)
		w := d.w
		if claim.State == message.ClaimGranted && w.holders[d.index] != d.in.name {
			w.holders[d.index] = d.in.name
			w.changes[d.index] = append(w.changes[d.index], w.now())
		}
		for i := range claim.Messages {
			p, at := w.promises[claim.Messages[i].ID], waitingSince(&claim.Messages[i])
			calm := w.stores[d.index].now().Add(max(w.skewedAt, simFor+simCalm) - w.now()) // since when nothing is the matter
			if late := claim.Now.Sub(at); w.isHealed && r.Slot == 0 && p.claimed > 0 && at.After(calm) && late > simLate {
				w.t.Errorf("I7: %s, which had been claimed before, is due for %s when it is claimed again", p.id, late)
			}
			d.claimed[p.id], d.claim[p.id] = true, r.Token
			if _, isKnown := d.doubted[r.Token]; !isKnown { // A run that comes late takes nothing back.
				d.doubted[r.Token] = d.in.queue.config.Claims.Durable
			}
			if p.claimed == 0 {
				p.claimed = w.now()
			}
			w.tell(fmt.Sprintf("  takes %s from slot %d", p.id, r.Slot))
		}
		w.meet()
	}, func(now time.Duration, err error) { d.shard.Claimed(now, claim, now, err) })
}

// meet notes which conditions hold at once.
func (w *world) meet() {
	for i, a := range conditions {
		for _, b := range conditions[i+1:] {
			if w.active[a] > 0 && w.active[b] > 0 && !w.isHealed {
				w.pairs[a+" × "+b]++
			}
		}
	}
}

func (d *simDriver) Reclaim(which message.Reclaim) {
	n, more := 0, false
	d.request("reclaim", func() {
		for token, c := range d.store.claims {
			if which.Foreign && token.Instance != which.Instance || token == which.Stray {
				for i := range c.messages {
					d.w.promises[c.messages[i].ID].faults++
				}
			}
		}
		for range 100 { // All at once: which of several comes first is left to a map.
			some, again, _ := d.store.Reclaim(d.w.t.Context(), which)
			n += some
			if !again {
				break
			}
		}
	}, func(now time.Duration, err error) { d.shard.Reclaimed(now, n, more, err) })
}

func (d *simDriver) Parked() {
	var parked []message.ParkedRoute
	d.request("parked", func() {
		parked, _ = d.store.Parked(d.w.t.Context())
		slices.SortFunc(parked, func(a, b message.ParkedRoute) int { return a.Slot - b.Slot })
	}, func(now time.Duration, err error) { d.shard.Loaded(now, parked, err) })
}

func (d *simDriver) NoLayout() { panic("there is one") }

func (d *simDriver) Topics(*batch.Batch, []int) { panic("all topics are taken") }

func (d *simDriver) Confirm(b *batch.Batch) {
	isConfirmed := false
	d.request("confirm", func() { isConfirmed = !d.w.isAlone }, func(now time.Duration, err error) {
		if err == nil && !isConfirmed {
			err = errLost
		}
		d.doubted[b.Token] = err != nil
		d.shard.Confirmed(now, b, err)
	})
}

func (d *simDriver) Settle(b *batch.Batch, settlement message.Settlement) {
	for i, v := range settlement.Verdicts {
		p := d.w.promises[settlement.Claim.Messages[i].ID]
		p.refused = p.refused || v.Verb == message.VerbRetry
		if v.Published && v.Verb != message.VerbAck {
			p.faults++
		}
	}
	stale := false
	d.request("settle", func() {
		takesBack := d.w.failover(d)
		stale = d.store.settle(settlement)
		takesBack()
	}, func(now time.Duration, err error) {
		if err == nil && !stale {
			for i, v := range settlement.Verdicts {
				d.back[settlement.Claim.Messages[i].ID] = v.Verb == message.VerbRelease
			}
		}
		d.shard.Settled(now, b, stale, err)
	})
}

// failover may have a replica be promoted that does not have what is written next, though it is answered. What it then does
// is done to what Redis has now.
func (w *world) failover(d *simDriver) (takesBack func()) {
	if !w.isFading || !w.chance(4) {
		return func() {}
	}
	f := d.store
	waiting, claims, routes := slices.Clone(f.waiting), maps.Clone(f.claims), maps.Clone(f.routes)
	return func() {
		f.waiting, f.claims, f.routes = waiting, claims, routes
		w.changes[d.index] = append(w.changes[d.index], w.now())
		w.tell("  a failover takes it back")
	}
}

// Publish gives messages to the broker, one of a chain after the other, as a sink must.
func (d *simDriver) Publish(c *batch.Publication, batch []message.Message) {
	w, left := d.w, len(batch)
	for i := range batch {
		d.mayPublish(&batch[i])
	}
	chains := sinks.NewChains(batch)
	report := func(i int, o outcome) {
		if !c.Outcomes.Report(i, o) {
			return
		}
		w.tell(fmt.Sprintf("  %s of %s: %s %s", batch[i].ID, d.in.name, o.Class, o.Reason))
		if left--; left == 0 {
			c.Return(nil)
		}
		d.later("", func() {})
	}
	rest := func(i int) {
		for _, n := range chains.Rest(i) {
			report(n, sinks.Failed(sinks.Unavailable, sinks.ReasonConnection, errBroker))
		}
	}
	var hand func(i int)
	hand = func(i int) {
		m := &batch[i]
		took, o, stores := w.broker(m)
		isOver, handed := false, w.promises[m.ID].handed
		if class, isHanded := handed[m.Attempt]; isHanded && class != sinks.Unavailable {
			w.t.Errorf("I3: %s is handed over as attempt %d again, which ended as %s", m.ID, m.Attempt, class)
		}
		handed[m.Attempt] = sinks.Unknown
		end := func(o outcome, stores bool) {
			if isOver {
				return
			}
			isOver, handed[m.Attempt] = true, o.Class
			if stores {
				w.isPrompt(m)
				w.stored = append(w.stored, storedCopy{m.ID, m.Attempt, w.now()})
				w.tell("  stored " + m.ID)
			}
			report(i, o)
			switch o.Class {
			case sinks.Acknowledged, sinks.Retryable, sinks.Permanent:
				if next, ok := chains.Next(i); ok {
					hand(next)
				}
			case sinks.Unknown, sinks.Unavailable:
				rest(i)
			}
		}
		d.underWay = append(d.underWay, func() { end(sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errBroker), w.chance(2)) })
		w.after(took, "", func() { end(o, stores) })
	}
	for _, i := range chains.Heads() {
		hand(i)
	}
}

// mayPublish judges that a message may be given to the broker now.
func (d *simDriver) mayPublish(m *message.Message) {
	now, token := d.store.now(), d.claim[m.ID]
	c := d.store.claims[token]
	switch {
	case d.hasDrained:
		d.w.t.Errorf("I13: %s of %s is published in a drain", m.ID, d.in.name)
	case d.doubted[token]:
		d.w.t.Errorf("§5: %s of %s is published, and its claim is not confirmed", m.ID, d.in.name)
	case d.w.active["clock"] > 0 || d.w.now() < d.w.skewedAt+time.Minute: // Redis' clock tells of another instant.
	case d.store.holder != d.in.name || !now.Before(d.store.until):
		d.w.t.Errorf("I15: %s of %s is published, and the lease of the shard has ended", m.ID, d.in.name)
	case c == nil || !now.Before(c.deadline):
		d.w.t.Errorf("I3: %s of %s is published, and its claim has ended", m.ID, d.in.name)
	}
}

// broker is what becomes of a message, and after how long.
func (w *world) broker(m *message.Message) (took time.Duration, o outcome, stores bool) {
	took = w.between(200*time.Microsecond, 20*time.Millisecond)
	fail := func(class sinks.Class, reason sinks.Reason) outcome { return sinks.Failed(class, reason, errBroker) }
	if w.isDown {
		if w.chance(3) {
			return took, sinks.FailedWhole(sinks.Unknown, sinks.ReasonConnection, errBroker), w.chance(2)
		}
		return took, sinks.FailedWhole(sinks.Unavailable, sinks.ReasonConnection, errBroker), false
	}
	switch w.modes[m.Topic] {
	case "hang":
		return 10 * time.Second, fail(sinks.Unknown, sinks.ReasonTimeout), w.chance(2)
	case "full":
		return took, fail(sinks.Unavailable, sinks.ReasonFull), false
	case "missing":
		return took, fail(sinks.Unavailable, sinks.ReasonTopicMissing), false
	case "nack":
		o := fail(sinks.Unknown, sinks.ReasonRefused)
		o.OfRoute = true
		return took, o, w.chance(2)
	case "slow":
		return took + time.Duration(w.random.IntN(3000))*time.Millisecond, acked, true
	}
	if w.isSink {
		return took, acked, true
	}
	switch w.random.IntN(60) {
	case 0:
		return took, fail(sinks.Retryable, sinks.ReasonRefused), false
	case 1:
		return took, fail(sinks.Unknown, sinks.ReasonTimeout), w.chance(2)
	default:
		return took, acked, true
	}
}

// isPrompt judges when a message of a topic that is always well is stored, where only others ail.
func (w *world) isPrompt(m *message.Message) {
	p := w.promises[m.ID]
	since := max(p.at, p.due.Sub(w.began))
	if late := w.now() - since; w.isSink && p.topic == simTopics[len(simTopics)-1] && late > simPrompt {
		w.t.Errorf("I8: %s is published %s late, and only other topics ail", p.id, late)
	}
}

// check looks at what has come of everything.
func (w *world) check() {
	t := w.t
	first := map[string]storedCopy{}
	attempts := map[string]bool{}
	copies := map[string]int{}
	for _, c := range w.stored {
		p := w.promises[c.id]
		copies[c.id]++
		if copies[c.id] == 1 {
			first[c.id] = c
		}
		if attempt := fmt.Sprint(c.id, " ", c.attempt); attempts[attempt] {
			t.Errorf("I3: two copies of %s have the attempt %d", c.id, c.attempt)
		} else {
			attempts[attempt] = true
		}
		if copies[c.id] > 1+p.faults {
			t.Errorf("I3: %d copies of %s after %d faults", copies[c.id], c.id, p.faults)
		}
	}
	for _, p := range w.order {
		switch {
		case p.cancelled: // Of one that was published before, the mark would tell.
		case copies[p.id] == 0:
			t.Errorf("I1: %s was lost", p.id)
		}
	}
	for i, f := range w.stores {
		if len(f.waiting)+len(f.claims) > 0 {
			t.Errorf("I7: shard %d has %d waiting and %d claims after %s without trouble", i, len(f.waiting), len(f.claims), simHealed)
			for _, m := range f.waiting {
				t.Logf("%s waits in slot %d until %s", m.ID, slotOf(&m), waitingSince(&m).Sub(w.began))
			}
		}
	}
	type chain struct{ key, topic string }
	chains := map[chain][]*promise{}
	for _, p := range w.order {
		if p.key != "" && !p.cancelled && copies[p.id] > 0 {
			c := chain{p.key, p.topic}
			chains[c] = append(chains[c], p)
		}
	}
	for _, members := range chains {
		for _, a := range members {
			for _, b := range members {
				if w.isPassed(a, b, first) {
					t.Errorf("I15: %s (due %s, claimed %s, stored %s) was passed by %s (due %s, claimed %s, stored %s) of key %s topic %s",
						a.id, a.due.Sub(w.began), a.claimed, first[a.id].at, b.id, b.due.Sub(w.began), b.claimed, first[b.id].at, a.key, a.topic)
					return
				}
			}
		}
	}
}

// isPassed reports whether b was published before a, though it is due later, and nothing
// excuses that.
func (w *world) isPassed(a, b *promise, first map[string]storedCopy) bool {
	before := cmp.Or(a.due.Truncate(time.Millisecond).Compare(b.due.Truncate(time.Millisecond)), cmp.Compare(a.id, b.id)) < 0
	if !before || first[b.id].at >= first[a.id].at || a.refused || b.refused {
		return false
	}
	earliest := min(a.claimed, b.claimed)
	if a.at >= earliest || b.at >= earliest {
		return false // Not there yet when the other was claimed.
	}
	return !slices.ContainsFunc(w.changes[a.shard], func(at time.Duration) bool { return at >= earliest && at <= first[a.id].at })
}

// simUptime is for how long a simulated process has run: longer than anything that is waited for.
const simUptime = 400 * 24 * time.Hour

// newSimulated is [NewQueue] with what is left to chance, in [0, 1), and with a phase of 0.
func newSimulated(config Config, random func() float64) (*Queue, error) {
	q, err := NewQueue(config)
	if err == nil {
		q.base, q.phase, q.random = q.base.Add(-simUptime), 0, random
	}
	return q, err
}
