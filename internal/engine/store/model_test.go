package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/statespace"
)

// TestModelDelay takes the steps of docs/model/Delay.tla with the real calls: after each, Redis has what the model says, and what
// must hold between the keys holds.
func TestModelDelay(t *testing.T) {
	t.Parallel()
	for _, config := range []string{"walk_delay", "walk_delay_one"} {
		t.Run(config, func(t *testing.T) {
			t.Parallel()
			server, clock := testenv.StartRedisWithClock(t)
			statespace.Play[delayState](t, "Delay", config, &delayWorld{rdb: connect(t, server.URL()+statespace.Patient), clock: clock})
		})
	}
}

// delayState is the state of the model.
type delayState struct {
	Msg                                 int
	Due, Maybe                          bool
	Claims                              []int
	Cancelled, CancelledMaybe, Replaced []int
	Pol                                 map[string]polling
	Op                                  map[string]operation
	OpDone                              map[string]bool
}

type polling struct {
	PC       string
	Tok, Ver int
}

type operation struct {
	Kind, Ans string
	Runs, Ver int
}

// delaySeen is what of it is in Redis.
type delaySeen struct {
	Version         int
	Waits, IsMarked bool
	Claims, Ended   []int
	Answered        map[string]bool // the calls whose answer has a tombstone
	Broken          string
}

// delayWorld is a shard with the calls and pollers of the model. The clock of Redis stands but where a claim's deadline is to pass.
type delayWorld struct {
	rdb      *redis.Client
	clock    *testenv.Clock
	now      time.Time
	q        *store.Queue
	calls    map[string]*store.Stepped // by producer
	versions map[string]int            // by the token of the call that made them
	pollers  map[string]*delayPoller
	claims   map[int]message.Claim // by the model's token
}

type delayPoller struct {
	instance string
	number   uint64
	claim    message.Claim
}

func (w *delayWorld) Begin(t testing.TB, _ []statespace.Step) {
	if w.q == nil {
		w.q = storetest.New(t, w.rdb, 1)
	}
	require.NoError(t, w.rdb.FlushAll(t.Context()).Err())
	w.now = time.Now()
	w.clock.Stop(w.now)
	_, err := w.q.Layouts().Ensure(t.Context(), storetest.Layout(1))
	require.NoError(t, err)
	w.calls, w.versions, w.pollers, w.claims = map[string]*store.Stepped{}, map[string]int{}, map[string]*delayPoller{}, map[int]message.Claim{}
}

// one is the only key of a map that differs between two states.
func one[V comparable](before, after map[string]V) string {
	for name := range after {
		if before[name] != after[name] {
			return name
		}
	}
	return ""
}

func (w *delayWorld) Take(t testing.TB, action string, before, after *delayState) error {
	c, p := one(before.Op, after.Op), one(before.Pol, after.Pol)
	if p != "" && w.pollers[p] == nil {
		w.pollers[p] = &delayPoller{instance: message.NewInstance(p)}
	}
	switch action {
	case "Start":
		w.start(c, after.Op[c])
	case "RunSchedule", "RunReplace", "RunCancel", "Lost":
		return w.calls[c].Run(t.Context(), action != "Lost")
	case "Reply":
		return w.reply(c, before.Op[c])
	case "Claim":
		return w.claim(t, w.pollers[p], before.Maybe, after.Pol[p])
	case "Publish": // The broker has it.
	case "Ack":
		return w.settle(t, before, p, func(*message.ClaimedMessage) message.Verdict { return acked })
	case "Unknown":
		return w.settle(t, before, p, func(m *message.ClaimedMessage) message.Verdict {
			verdict := unknown
			verdict.Attempts = m.Attempts
			verdict.Attempts.Begun, verdict.Attempts.MaybeOut, verdict.Attempts.Unknowns = m.Attempts.Begun+1, m.Attempts.MaybeOut+1, m.Attempts.Unknowns+1
			return verdict
		})
	case "Crash":
		delete(w.pollers, p) // It comes back as another instance.
	case "Reclaim":
		return w.reclaim(t, before.Claims[slices.IndexFunc(before.Claims, func(tok int) bool { return !slices.Contains(after.Claims, tok) })])
	default:
		return fmt.Errorf("%w: %s", errModel, action)
	}
	return nil
}

var errModel = errors.New("not as in the model")

func (w *delayWorld) start(c string, op operation) {
	w.calls[c] = w.q.Producer().Step(op.Kind, &store.Request{Message: note("x", strconv.Itoa(op.Ver)), When: past()})
	if op.Ver > 0 {
		w.versions[w.calls[c].Token()] = op.Ver
	}
}

// told are the codes of the model's answers.
var told = map[string][]store.Code{
	"created": {store.Created, store.Replaced}, "duplicate": {store.Waiting, store.InFlight}, "toolate": {store.InFlight}, "done": {store.Done},
	"maybe": {store.DoneMaybePublished}, "notfound": {store.NotFound},
}

func (w *delayWorld) reply(c string, op operation) error {
	answer, more := w.calls[c].Hear()
	delete(w.calls, c)
	isUnknown := errors.Is(answer.Err, store.ErrUnknown)
	switch {
	case more || answer.Err != nil && !isUnknown:
		return fmt.Errorf("%w: no answer: %+v", errModel, answer)
	case isUnknown && (op.Ans == "unknown" || op.Ans == "not its own" || op.Ans == "none"):
		return nil
	case op.Ans == "not its own":
		op.Ans = "duplicate"
	}
	if isUnknown || !slices.Contains(told[op.Ans], answer.Code) {
		return fmt.Errorf("%w: answered %+v, not %s", errModel, answer, op.Ans)
	}
	return nil
}

// claim takes the shard from whoever holds it, as if that one's lease had lapsed.
func (w *delayWorld) claim(t testing.TB, p *delayPoller, isMarked bool, want polling) error {
	p.number++
	request := message.ClaimRequest{Token: message.ClaimToken{Instance: p.instance, Number: p.number}, Max: 1, Timeout: time.Millisecond, Lease: lease}
	claim, err := w.take(t, request)
	if err != nil {
		return err
	}
	if claim.State != message.ClaimGranted || len(claim.Messages) != 1 {
		return fmt.Errorf("%w: claimed %+v", errModel, claim)
	}
	m := &claim.Messages[0]
	if string(m.Body) != strconv.Itoa(want.Ver) || (m.Attempts.MaybeOut > 0) != isMarked {
		return fmt.Errorf("%w: claimed %+v, not %d, marked %t", errModel, m, want.Ver, isMarked)
	}
	p.claim, w.claims[want.Tok] = claim, claim
	return nil
}

func (w *delayWorld) take(t testing.TB, request message.ClaimRequest) (claim message.Claim, err error) {
	claim, err = w.q.Shard(0).Claim(t.Context(), request)
	if err == nil && claim.State == message.ClaimHeld {
		request.Seize = claim.Holder
		claim, err = w.q.Shard(0).Claim(t.Context(), request)
	}
	return claim, err
}

func (w *delayWorld) settle(t testing.TB, before *delayState, name string, verdict func(*message.ClaimedMessage) message.Verdict) error {
	p := w.pollers[name]
	stale, err := w.q.Shard(0).Settle(t.Context(), settlement(p.claim, verdict(&p.claim.Messages[0])))
	if owns := slices.Contains(before.Claims, before.Pol[name].Tok); err == nil && stale == owns {
		err = fmt.Errorf("%w: settled, stale %t", errModel, stale)
	}
	return err
}

// reclaim has the claim put back: where it was the holder's, after its deadline, else by another that takes the shard over.
func (w *delayWorld) reclaim(t testing.TB, tok int) error {
	if tok%2 == 0 {
		other := message.ClaimToken{Instance: message.NewInstance("other"), Number: 1}
		claim, err := w.take(t, message.ClaimRequest{Token: other, Timeout: time.Hour, Lease: lease})
		if err != nil || claim.State != message.ClaimReclaimFirst {
			return fmt.Errorf("%w: took over %+v, %w", errModel, claim, err)
		}
		return w.reclaims(t, message.Reclaim{Instance: other.Instance, Foreign: true})
	}
	return w.reclaims(t, message.Reclaim{Instance: w.claims[tok].Token.Instance})
}

func (w *delayWorld) reclaims(t testing.TB, r message.Reclaim) error {
	w.now = w.now.Add(2 * time.Millisecond)
	w.clock.Stop(w.now)
	n, _, err := w.q.Shard(0).Reclaim(t.Context(), r)
	if err == nil && n != 1 {
		err = fmt.Errorf("%w: %d messages were reclaimed", errModel, n)
	}
	return err
}

func (w *delayWorld) Seen(t testing.TB, model *delayState) (is, want any) {
	s := dump(t, w.rdb, w.q)
	got := delaySeen{Waits: len(s.Due) > 0, Claims: []int{}, Ended: []int{}, Answered: map[string]bool{}}
	if err := s.Check(); err != nil {
		got.Broken = err.Error()
	}
	if stored := s.Msg["x"]; stored != "" {
		got.Version = w.versions[stored[14:14+message.TokenLength]]
	}
	history, err := message.ParseHistory(s.Attempts["x"])
	require.NoError(t, err)
	got.IsMarked = history.Attempts.MaybeOut > 0
	for tok, claim := range w.claims {
		if s.Claims[claim.Token.String()] != "" {
			got.Claims = append(got.Claims, tok)
		}
	}
	slices.Sort(got.Claims)
	for token, version := range w.versions {
		if s.Gone[token] != "" {
			got.Ended = append(got.Ended, version)
		}
	}
	slices.Sort(got.Ended)
	for c, call := range w.calls {
		if version := w.versions[call.Token()]; version == 0 {
			got.Answered[c] = s.Gone[call.Token()] != ""
		}
	}
	shouldBe := delaySeen{Version: model.Msg, Waits: model.Due, IsMarked: model.Maybe, Claims: model.Claims, Answered: map[string]bool{}}
	shouldBe.Ended = slices.Concat([]int{}, model.Cancelled, model.CancelledMaybe, model.Replaced)
	slices.Sort(shouldBe.Ended)
	shouldBe.Ended = slices.Compact(shouldBe.Ended)
	for c, op := range model.Op {
		if op.Kind == "cancel" {
			shouldBe.Answered[c] = model.OpDone[c]
		}
	}
	return got, shouldBe
}
