package membership

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeRedis is what the members of a queue share. Its methods are safe for concurrent use.
type fakeRedis struct {
	mu         sync.Mutex
	clock      time.Duration // by how much it is ahead of ours
	beats      map[string]int64
	layout     *store.Layout // nil: lost
	lost       []int         // shards without meta
	losses     []store.Loss  // recorded, of so many attempts
	recordings int
	paused     map[string]time.Time
	born       []time.Time // of the shards
	err        error       // what every call answers
	errBorn    error       // what Born answers
	errEnsure  error       // what Ensure answers
	remains    bool        // the shards know the layout still
	calls      map[string]int
}

func newFakeRedis(shards int) *fakeRedis {
	return &fakeRedis{
		beats: map[string]int64{}, calls: map[string]int{}, born: make([]time.Time, shards),
		layout: &store.Layout{Shards: shards, Epoch: "1-life-a"},
	}
}

func (f *fakeRedis) call(name string) error {
	f.calls[name]++
	return f.err
}

// count is how often a method was called since the last count of it.
func (f *fakeRedis) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.calls[name]
	f.calls[name] = 0
	return n
}

func (f *fakeRedis) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeRedis) Heartbeat(_ context.Context, instance string, forgetAfter time.Duration) ([]store.Heartbeat, map[string]time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call("heartbeat"); err != nil {
		return nil, nil, err
	}
	now := time.Now().Add(f.clock).UnixMilli()
	for other, at := range f.beats {
		if at <= now-forgetAfter.Milliseconds() {
			delete(f.beats, other)
		}
	}
	f.beats[instance] = now
	var all []store.Heartbeat
	for other, at := range f.beats {
		all = append(all, store.Heartbeat{Instance: other, At: at})
	}
	slices.SortFunc(all, func(a, b store.Heartbeat) int { return cmp.Compare(a.At, b.At) })
	return all, maps.Clone(f.paused), nil
}

func (f *fakeRedis) Leave(_ context.Context, instance string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.beats, instance)
	return f.call("leave")
}

func (f *fakeRedis) Load(context.Context) (*store.Layout, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call("layout"); err != nil {
		return nil, err
	}
	if f.layout == nil {
		return nil, store.ErrNoLayout
	}
	layout := *f.layout
	return &layout, nil
}

func (f *fakeRedis) Ensure(_ context.Context, want store.Layout) (*store.Layout, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call("ensure"); err != nil {
		return nil, err
	}
	switch {
	case f.layout == nil && f.errEnsure != nil:
		return nil, f.errEnsure
	case f.layout == nil && f.remains:
		f.layout = &store.Layout{Shards: want.Shards, Epoch: "2-life-a"}
	case f.layout == nil:
		f.layout = &store.Layout{Shards: want.Shards, Epoch: "1-another-a"}
		f.born = slices.Repeat([]time.Time{time.Now()}, want.Shards)
	}
	layout := *f.layout
	return &layout, nil
}

func (f *fakeRedis) Born(_ context.Context, layout *store.Layout) ([]time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	born := make([]time.Time, layout.Shards)
	copy(born, f.born)
	return born, errors.Join(f.call("born"), f.errBorn)
}

// remake makes shards again that were lost.
func (f *fakeRedis) remake(shards ...int) {
	for _, shard := range shards {
		f.born[shard] = time.Now()
	}
	layout := *f.layout
	layout.Epoch += "+"
	f.layout = &layout
}

func (f *fakeRedis) Repair(context.Context) ([]int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call("repair"); err != nil {
		return nil, err
	}
	if f.layout == nil {
		return nil, store.ErrNoLayout
	}
	lost := f.lost
	f.lost = nil
	if len(lost) > 0 {
		f.remake(lost...)
	}
	return lost, nil
}

// RecordLoss fails the first time.
func (f *fakeRedis) RecordLoss(_ context.Context, loss store.Loss) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.recordings++; f.recordings == 1 {
		return errors.New("redis is full")
	}
	f.losses = append(f.losses, loss)
	return nil
}

func (f *fakeRedis) Step(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.call("step")
}

func (f *fakeRedis) Glance(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.call("glance")
}

// fakePoller knows what it was assigned.
type fakePoller struct {
	mu       sync.Mutex
	assigned []int
	obtained Gains
	paused   map[string]time.Time
	onAssign func() // with the lock
}

func (p *fakePoller) Pause(topics map[string]time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = topics
}

func (p *fakePoller) Assign(shards []int, _ int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.assigned = slices.Clone(shards)
	if p.onAssign != nil {
		p.onAssign()
	}
	return nil
}

func (p *fakePoller) Gains() Gains {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.obtained
	p.obtained = Gains{}
	return got
}

func (p *fakePoller) polls() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.assigned)
}

// fakeObserver is an [Observer].
type fakeObserver struct {
	mu        sync.Mutex
	instances int
	lost      int
	paused    map[string]time.Time
}

func (*fakeObserver) Layout(string, string, int) {}

func (o *fakeObserver) Paused(_ string, topics map[string]time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.paused = topics
}

func (o *fakeObserver) ShardsLost(_ string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lost += n
}

func (o *fakeObserver) Instances(_ string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.instances = n
}

// logBuffer keeps what is logged.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// times is how often the log has the text.
func (l *logBuffer) times(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// runningMember is a member that runs.
type runningMember struct {
	*Member

	t      *testing.T
	poller *fakePoller
	seen   *fakeObserver
	log    *logBuffer
	reborn int
	heard  error // the last
	ended  chan error
	cancel context.CancelFunc
	// hints calls what a hint of a change is to call; nil before the first share.
	hints func()
}

func newRunning(t *testing.T, redis *fakeRedis, instance string) *runningMember {
	r := &runningMember{t: t, poller: &fakePoller{}, seen: &fakeObserver{}, log: &logBuffer{}, ended: make(chan error, 1)}
	r.Member = New(Config{
		Queue: "orders", Instance: instance, Lease: 5 * time.Second, Want: store.Layout{Shards: 8},
		Store: redis, Registry: redis, Keeper: redis, Observer: r.seen, Logger: slog.New(slog.NewTextHandler(r.log, nil)),
		Heard: func(err error) { r.heard = err }, Reborn: func() { r.reborn++ },
		Hear: func(_ []int, changed func()) { r.hints = changed },
	})
	return r
}

// run prepares the member and runs it until stop.
func (r *runningMember) run() *runningMember {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel = cancel
	go func() {
		_, err := r.Prepare(ctx)
		if err == nil {
			err = r.Run(ctx, r.poller)
		}
		r.ended <- err
	}()
	return r
}

// stop ends it as a drain does.
func (r *runningMember) stop() {
	r.cancel()
	r.t.Log("ended:", <-r.ended)
	r.Leave(r.t.Context())
}

// kill ends it as kill -9 does.
func (r *runningMember) kill() {
	r.cancel()
	r.t.Log("ended:", <-r.ended)
}
