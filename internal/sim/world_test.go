package sim

import (
	"cmp"
	"container/heap"
	"fmt"
	gohash "hash"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// world has the time, the events, and what is between the parts. All that happens is an event
// of one queue, ordered by time. Between two events the world waits until every goroutine of
// the product waits for it again, see [world.run]: what they have asked for meanwhile it takes
// in an order of its own, so that nothing is left to Go's scheduler.
type world struct {
	t      *testing.T
	log    func(string, ...any)
	plan   *plan
	random *rand.Rand
	began  time.Time
	events eventQueue
	timer  *time.Timer
	number int

	mu        sync.Mutex
	inbox     []arrival // what goroutines have asked for since the last event
	poke      chan struct{}
	hash      gohash.Hash64
	line      []byte // the last one
	collected int    // at how many lines
	lines     int
	failed    string

	redis    redisEdge
	broker   broker
	database databaseEdge
	letters  letters
	hosts    []*host
	model    *model
	pairs    map[string]int
	active   map[string]int // conditions
	meet     []string       // pairs of them, now
	healed   bool
	isOver   bool // everything ends
	ended    time.Duration
	// isNight: no bridge runs, nor does one start.
	isNight bool
}

// arrival is something that a goroutine asks of the world.
type arrival struct {
	order string // among those that come in the same instant
	take  func()
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

func newWorld(t *testing.T, p *plan, log func(string, ...any)) *world {
	t.Helper()
	w := &world{
		t: t, log: log, plan: p, random: rand.New(rand.NewPCG(p.seed, 1)), began: time.Now(), timer: time.NewTimer(0), poke: make(chan struct{}, 1), hash: fnv.New64a(),
		pairs: map[string]int{}, active: map[string]int{},
	}
	w.model = newModel(w)
	w.redis.start(w)
	w.broker.start(w)
	w.database.start(w)
	w.letters.w = w
	return w
}

func (w *world) now() time.Duration { return time.Since(w.began) }

// after has something happen. Only events may call it.
func (w *world) after(d time.Duration, name string, do func()) {
	w.number++
	heap.Push(&w.events, event{w.now() + max(0, d), w.number, name, do})
}

// ask has the world do something once all goroutines wait. Any goroutine may call it.
func (w *world) ask(order string, take func()) {
	w.mu.Lock()
	w.inbox = append(w.inbox, arrival{order, take})
	w.mu.Unlock()
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// settle waits until all goroutines wait, and takes what they ask for.
func (w *world) settle() {
	for {
		synctest.Wait()
		w.mu.Lock()
		inbox := w.inbox
		w.inbox = nil
		w.mu.Unlock()
		if len(inbox) == 0 {
			return
		}
		slices.SortStableFunc(inbox, func(a, b arrival) int { return strings.Compare(a.order, b.order) })
		for _, a := range inbox {
			a.take()
		}
	}
}

// run lets things happen until then, or until something has failed.
func (w *world) run(until time.Duration) {
	for !w.hasFailed() {
		w.settle()
		w.collect()
		next := until
		if len(w.events) > 0 {
			next = min(next, w.events[0].at)
		}
		if wait := next - w.now(); wait > 0 {
			w.timer.Reset(wait)
			select {
			case <-w.timer.C:
			case <-w.poke:
			}
			w.timer.Stop()
			continue
		}
		if len(w.events) == 0 || w.events[0].at > until {
			return
		}
		e := heap.Pop(&w.events).(event) //nolint:forcetypeassert // see Push
		w.tell(e.name)
		e.do()
	}
}

// collect has the garbage collected now and then, while nobody runs: fresh memory costs more.
func (w *world) collect() {
	w.mu.Lock()
	lines := w.lines
	w.mu.Unlock()
	if lines-w.collected >= collectEvery {
		w.collected = lines
		runtime.GC()
	}
}

// collectEvery is after how many lines of the story.
const collectEvery = 5000

// tell writes a line of the story.
func (w *world) tell(line string) {
	if line == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count(append(w.line[:0], line...))
	if w.log != nil {
		w.log("%14s %s", w.now(), line)
	}
}

// tellAnswer writes a line of the story: what Redis answers.
func (w *world) tellAnswer(answer []byte, replies []any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count(append(w.line[:0], answer...))
	if w.log != nil {
		w.log("%14s   answers %s", w.now(), printable(replies))
	}
}

// count makes the line a part of the trace.
func (w *world) count(line []byte) {
	w.lines++
	w.line = append(strconv.AppendInt(line, int64(w.now()), 10), '\n')
	_, _ = w.hash.Write(w.line) // It never fails.
}

// fail ends the story: the first failure is the one to be told.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == "" {
		w.failed = fmt.Sprintf("%s: ", w.now()) + fmt.Sprintf(format, args...)
	}
}

func (w *world) hasFailed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed != ""
}

func (w *world) chance(oneIn int) bool { return w.random.IntN(oneIn) == 0 }

// between is a duration, small ones as often as large ones.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	d := least
	for d < most/2 && random.IntN(3) > 0 {
		d *= 2
	}
	return min(most, d+time.Duration(random.Int64N(int64(d)+1)))
}

func (w *world) between(least, most time.Duration) time.Duration {
	return between(w.random, least, most)
}

// countActive has one more, or one less, of what is the matter.
func (w *world) countActive(name string, by int) {
	w.active[name] += by
	w.meet = w.meet[:0]
	for i, a := range conditions {
		if w.active[a] == 0 {
			continue
		}
		for _, b := range conditions[i+1:] {
			if w.active[b] > 0 {
				w.meet = append(w.meet, a+" × "+b)
			}
		}
	}
}

// during makes something the matter for a while.
func (w *world) during(name string, lasts time.Duration, begin, end func()) {
	w.tell("begin " + name)
	w.countActive(name, 1)
	w.model.happened(name)
	w.model.meet() // While Redis is away, no command does.
	begin()
	w.after(lasts, "end "+name, func() {
		w.countActive(name, -1)
		w.model.happened(name)
		end()
	})
}

// host is a process: what it asks for over the network comes from it, and ends with it.
type host struct {
	w       *world
	name    string
	conns   map[*conn]bool // guarded by w.mu
	isDead  bool           // guarded by w.mu
	stalled time.Duration  // nothing comes in or goes out before; only events use it
	unheard time.Duration  // until then it may wait for an answer of the database that was lost; only events use it
	asked   int            // in this instant
	askedAt time.Duration
	claims  int // less what it has handed over to the broker, in these restless seconds
	since   time.Duration
}

func (w *world) newHost(name string) *host {
	h := &host{w: w, name: name, conns: map[*conn]bool{}}
	w.hosts = append(w.hosts, h)
	return h
}

// restless is how long a host may claim more than it publishes, mostFruitless how much more.
const (
	restless      = 10 * time.Second
	mostFruitless = 300
)

// claimed notes a claim of a host, or that it has handed messages over: what is claimed again and
// again, and given back each time, costs Redis a core.
func (h *host) claimed(n int) {
	if now := h.w.now(); now > h.since+restless {
		h.claims, h.since = 0, now
	}
	if h.claims += n; h.claims > mostFruitless {
		h.w.fail("I9: %s claims again and again", h.name)
	}
}

func (h *host) dead() bool {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	return h.isDead
}

// die ends all that the host asks for.
func (h *host) die() {
	h.w.mu.Lock()
	h.isDead = true
	conns := sortedConns(h.conns)
	h.w.mu.Unlock()
	for _, c := range conns {
		c.cut(errReset)
	}
	h.w.database.cut(h)
}

// mostAsked is how much one host may ask for in one instant: more is a loop without end.
const mostAsked = 400

func (h *host) count() {
	if now := h.w.now(); now != h.askedAt {
		h.asked, h.askedAt = 0, now
	}
	if h.asked++; h.asked > mostAsked {
		h.w.fail("I9: %s asks without end", h.name)
	}
}
