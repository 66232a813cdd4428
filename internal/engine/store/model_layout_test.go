package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/statespace"
)

// TestModelLayout takes the steps of docs/model/Layout.tla: a queue gets a second shard, to which a message's home moves, while
// producers, some of whom know the old layout only, schedule and cancel it. The change goes on write by write.
func TestModelLayout(t *testing.T) {
	t.Parallel()
	url := testenvPrivate(t)
	w := &layoutWorld{rdb: connect(t, url+statespace.Patient), change: func() {}}
	w.gate.UniversalClient = w.rdb
	t.Cleanup(func() { w.change() })
	for w.id = "x"; layout.Home("", w.id, 2) == 0; {
		w.id += "x"
	}
	statespace.Play[layoutState](t, "Layout", "walk_layout", w)
}

type layoutState struct {
	Old, New, Fenced, Intent bool
	Layout                   int
	Cl                       map[string]client
}

type client struct {
	PC    string
	Epoch int
}

// layoutSeen is what of it is in Redis, and in what clients know.
type layoutSeen struct {
	Old, New, Fenced, Intent bool
	Layout                   int
	Epochs                   map[string]int // of the clients that were not refused
	Broken                   string
}

type layoutWorld struct {
	rdb      *redis.Client
	gate     writeGate
	id, name string
	first    string // the epoch of the first layout
	bridge   *bridge
	clients  map[string]*store.Queue
	calls    map[string]*store.Stepped
	change   func() // ends the change
}

func (w *layoutWorld) Begin(t testing.TB, _ []statespace.Step) {
	w.change()
	require.NoError(t, w.rdb.FlushAll(t.Context()).Err())
	q := store.New(w.rdb, storetest.Prefix, "q-model")
	first, err := q.Layouts().Ensure(t.Context(), storetest.Layout(1))
	require.NoError(t, err)
	w.name, w.first, w.bridge = q.Name(), first.Epoch, newBridge(t, q)
	w.clients, w.calls = map[string]*store.Queue{}, map[string]*store.Stepped{}
	for _, c := range []string{"c1", "c2"} { // They know the first layout.
		w.clients[c] = store.New(w.rdb, storetest.Prefix, w.name)
		_, err := w.clients[c].LoadLayout(t.Context())
		require.NoError(t, err)
	}
	w.change, w.gate.passed = func() {}, ""
}

func (w *layoutWorld) Take(t testing.TB, action string, before, after *layoutState) error {
	c := one(before.Cl, after.Cl)
	switch action {
	case "Begin":
		w.calls[c] = w.clients[c].Producer().Step(after.Cl[c].PC, &store.Request{Message: note(w.id, "x"), When: past()})
	case "Schedule", "Create", "Cancel", "CancelNew":
		return w.run(t, c, action, before, after)
	case "Reload":
		if c == "" { // One that knows the layout.
			return nil
		}
		delete(w.calls, c)
		_, err := w.clients[c].LoadLayout(t.Context())
		return err
	case "Publish":
		return w.publish(t, before.Old)
	default: // The change.
		return w.goOn(t, before, after)
	}
	return nil
}

// run has a call visit one home.
func (w *layoutWorld) run(t testing.TB, c, action string, before, after *layoutState) error {
	if err := w.calls[c].Run(t.Context(), true); err != nil {
		return err
	}
	answer, more := w.calls[c].Hear()
	if pc := after.Cl[c].PC; more || pc != "idle" {
		if refused := w.calls[c].IsRefused(); !more || refused != (pc == "reload") {
			return fmt.Errorf("%w: answered %+v, more %t, refused %t, not %s", errModel, answer, more, refused, pc)
		}
		return nil
	}
	delete(w.calls, c)
	want := store.NotFound
	changed := before.Old != after.Old || before.New != after.New
	switch isSchedule := action == "Schedule" || action == "Create"; {
	case isSchedule && changed:
		want = store.Created
	case isSchedule:
		want = store.Waiting
	case changed:
		want = store.Done
	}
	if answer.Err != nil || answer.Code != want {
		return fmt.Errorf("%w: answered %+v, not %d", errModel, answer, want)
	}
	return nil
}

func (w *layoutWorld) publish(t testing.TB, inOld bool) error {
	shard := 1
	if inOld {
		shard = 0
	}
	claim, err := w.bridge.Queue.Shard(shard).Claim(t.Context(), w.bridge.Request(1))
	if err != nil || len(claim.Messages) != 1 {
		return fmt.Errorf("%w: claimed %+v: %w", errModel, claim, err)
	}
	stale, err := w.bridge.Queue.Shard(shard).Settle(t.Context(), storetest.Settlement(claim, acked))
	if stale {
		err = errModel
	}
	return err
}

// goOn has the change make its next write.
func (w *layoutWorld) goOn(t testing.TB, before, after *layoutState) error {
	if !before.Intent {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		w.gate.done = make(chan struct{})
		w.gate.came, w.gate.open = make(chan string), make(chan string)
		w.change = func() { cancel(); <-w.gate.done }
		go func() {
			defer close(w.gate.done)
			if _, err := store.New(&w.gate, storetest.Prefix, w.name).Layouts().SetShards(ctx, 2); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}()
		if write := <-w.gate.came; write != "next" {
			return fmt.Errorf("%w: the change writes %s first", errModel, write)
		}
	}
	write := "next"
	switch {
	case before.Fenced != after.Fenced:
		write = "meta"
	case before.Layout != after.Layout:
		write = "shards"
	}
	w.gate.open <- write
	select {
	case <-w.gate.came:
	case <-w.gate.done:
	}
	return nil
}

// writeGate is a client that waits before the writes of a change: all that are alike go through together.
type writeGate struct {
	redis.UniversalClient

	mu     sync.Mutex
	passed string
	came   chan string // what is the next
	open   chan string
	done   chan struct{}
}

// writeOf is the kind of a write of a change: of next or of shards in the layout, or of a fence in meta.
func writeOf(args []any) string {
	switch {
	case len(args) < 6 || !strings.HasPrefix(fmt.Sprint(args[0]), "eval"):
	case strings.HasSuffix(fmt.Sprint(args[3]), ":meta"):
		return "meta"
	case len(args) > 7 && slices.Contains([]any{"next", "shards"}, args[7]):
		return args[7].(string) //nolint:forcetypeassert // it is one
	}
	return ""
}

// Process implements [redis.UniversalClient].
func (g *writeGate) Process(ctx context.Context, cmd redis.Cmder) error {
	if write := writeOf(cmd.Args()); write != "" {
		if err := g.pass(ctx, write); err != nil {
			return err
		}
	}
	return g.UniversalClient.Process(ctx, cmd)
}

func (g *writeGate) pass(ctx context.Context, write string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.passed == write {
		return nil
	}
	select {
	case g.came <- write:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case g.passed = <-g.open:
	case <-ctx.Done():
		return ctx.Err()
	}
	if g.passed != write {
		return fmt.Errorf("%w: it writes %s, not %s", errModel, write, g.passed)
	}
	return nil
}

func (w *layoutWorld) Seen(t testing.TB, model *layoutState) (is, want any) {
	got := layoutSeen{Epochs: map[string]int{}, Layout: 1}
	for shard, there := range []*bool{&got.Old, &got.New} {
		s, err := storetest.Dump(t.Context(), w.rdb, w.name, shard)
		require.NoError(t, err)
		*there = s.Msg[w.id] != ""
		if shard == 0 {
			got.Fenced = s.Meta["epoch"] != w.first
		}
		if s.Meta["epoch"] == "" { // There is no second shard yet.
			continue
		}
		if err := s.Check(); err != nil {
			got.Broken = err.Error()
		}
	}
	fields, err := w.rdb.HGetAll(t.Context(), storetest.Prefix+":"+w.name+":layout").Result()
	require.NoError(t, err)
	if fields["epoch"] != w.first {
		got.Layout = 2
	}
	got.Intent = got.Layout == 2 || fields["next"] != ""
	should := layoutSeen{Old: model.Old, New: model.New, Fenced: model.Fenced, Intent: model.Intent, Layout: model.Layout, Epochs: map[string]int{}}
	for c, known := range model.Cl {
		if known.PC == "reload" {
			continue
		}
		should.Epochs[c], got.Epochs[c] = known.Epoch, 1
		if w.clients[c].Layouts().InUse().Epoch != w.first {
			got.Epochs[c] = 2
		}
	}
	return got, should
}
