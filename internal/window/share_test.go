package window_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/window"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const each = 100 // bytes of a message

// member is a share, what it has in flight, and how often it was woken.
type member struct {
	*window.Share
	*window.Window
	flying, bytes int
	woken         int
}

func join(w *window.Window) *member {
	m := &member{Window: w}
	m.Share = w.Join("orders", func() { m.woken++ })
	return m
}

// send reserves, claims and uses, and returns how many messages are in flight.
func (m *member) send(want int) int {
	messages, _, _ := m.Reserve(want, true)
	if messages > 0 {
		m.use(messages, messages*each)
	}
	return messages
}

// use has what was reserved in flight, so much of it.
func (m *member) use(messages, bytes int) {
	m.flying, m.bytes = m.flying+messages, m.bytes+bytes
	m.Hold(m.flying, m.bytes, true)
}

func (m *member) answered(messages int) bool { return m.tookFor(messages, time.Millisecond) }

func (m *member) tookFor(messages int, took time.Duration) bool {
	wasDown := m.Answered(messages, messages*each, took)
	m.gone(messages)
	return wasDown
}

func (m *member) gone(messages int) { m.free(messages, messages*each) }

func (m *member) free(messages, bytes int) {
	m.flying, m.bytes = m.flying-messages, m.bytes-bytes
	m.Hold(m.flying, m.bytes, false)
}

func (m *member) leave() {
	m.Leave()
	m.flying, m.bytes = 0, 0
}

// requireInFlight checks what is in flight where nobody keeps anything.
func requireInFlight(t *testing.T, w *window.Window, messages int) {
	t.Helper()
	inFlight, bytes := w.InFlight()
	require.Equal(t, messages, inFlight)
	require.Equal(t, messages*each, bytes)
	kept, _ := w.Kept()
	require.Zero(t, kept)
}

// grown returns a window that has learned that a thousand messages may be in flight.
func grown(t *testing.T) *window.Window {
	t.Helper()
	w := window.New()
	m := join(w)
	for {
		if messages, _ := w.Limit(); messages >= 1000 {
			break
		}
		n := m.send(1 << 20)
		<-time.After(25 * time.Millisecond)
		m.tookFor(n, 25*time.Millisecond)
	}
	requireInFlight(t, w, 0)
	return w
}

func TestAccounting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := window.New()
		a := join(w)
		require.Zero(t, w.Pace())

		messages, bytes, retryAt := a.Reserve(5, true)
		require.Equal(t, 5, messages)
		require.Positive(t, bytes)
		require.Zero(t, retryAt)
		kept, keptBytes := w.Kept()
		require.Equal(t, []int{5, bytes}, []int{kept, keptBytes})

		a.use(3, 3*each)
		requireInFlight(t, w, 3)
		require.False(t, a.answered(1))
		a.gone(1)
		requireInFlight(t, w, 1)
		pace := w.Pace()
		require.Equal(t, time.Now(), pace.LastAnswer)
		require.Equal(t, time.Now().Add(-time.Millisecond), pace.Overtaken)

		a.answered(1)
		requireInFlight(t, w, 0)
		require.False(t, a.Answered(0, 0, time.Hour), "of a message that is gone")
		require.Equal(t, 5, a.send(5))
		a.leave()
		a.Answered(5, 5*each, time.Millisecond)
		requireInFlight(t, w, 0)
	})
}

func TestMoreBytesThanReserved(t *testing.T) {
	t.Parallel()
	w := window.New()
	a, b := join(w), join(w)
	messages, _, _ := a.Reserve(1, true)
	require.Equal(t, 1, messages)
	a.use(1, 1<<30)
	require.Zero(t, b.send(1), "the bytes are used up")
	a.Answered(1, 1<<30, time.Millisecond)
	a.free(1, 1<<30)
	require.Equal(t, 1, b.woken)
	require.Equal(t, 1, b.send(1))
	b.gone(1)
	requireInFlight(t, w, 0)
}

func TestNothingIsLearnedFromAnIdleSink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := grown(t)
		before, _ := w.Limit()
		a := join(w)
		for range 1000 {
			require.Equal(t, 1, a.send(1))
			<-time.After(25 * time.Millisecond)
			a.tookFor(1, 25*time.Millisecond)
		}
		after, _ := w.Limit()
		require.Equal(t, before, after)
	})
}

func TestSharesWaitInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := window.New()
		a := join(w)
		all := a.send(1 << 20)
		limit, _ := w.Limit()
		require.Equal(t, limit, all)

		var others []*member
		for range 4 {
			m := join(w)
			require.Zero(t, m.send(1))
			others = append(others, m)
		}
		late := join(w)
		messages, _, _ := late.Reserve(1, false)
		require.Zero(t, messages, "others wait")
		for i := range others {
			a.answered(1)
			for k, m := range others {
				woken := 0
				if k <= i {
					woken = 1
				}
				require.Equal(t, woken, m.woken, "share %d after %d answers", k, i+1)
			}
		}
		require.Zero(t, late.woken, "it did not queue")
		for _, m := range others {
			require.Equal(t, 1, m.send(1))
			m.answered(1)
		}
		a.gone(all - len(others))
		requireInFlight(t, w, 0)
	})
}

// A share that has little in flight waits for none that has much, though that one
// has waited for longer.
func TestLittleGoesFirst(t *testing.T) {
	t.Parallel()
	w := window.New()
	most, _ := w.Limit()
	busy, quiet := join(w), join(w)
	require.Equal(t, most/4, busy.send(most/4))
	rest := join(w)
	for rest.send(1<<20) > 0 {
		continue
	}
	require.Zero(t, busy.send(most))
	require.Zero(t, quiet.send(1))
	busy.gone(1)
	require.Equal(t, []int{0, 1}, []int{busy.woken, quiet.woken})
	require.Equal(t, 1, quiet.send(1))
}

func TestYieldPassesTheTurnOn(t *testing.T) {
	t.Parallel()
	w := window.New()
	a, b, c := join(w), join(w), join(w)
	all := a.send(1 << 20)
	require.Zero(t, b.send(1))
	require.Zero(t, c.send(1))
	a.gone(1)
	require.Equal(t, []int{1, 0}, []int{b.woken, c.woken})
	b.Yield()
	require.Equal(t, 1, c.woken)
	c.leave()
	require.Zero(t, b.woken-1, "it waits no more")
	again, _, _ := b.Reserve(1, false)
	require.Equal(t, 1, again, "what it has yielded is nothing that it was granted")
	b.leave()
	a.gone(all - 1)
	requireInFlight(t, w, 0)
}

func TestGreedySharesGetHalfEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := grown(t)
		shares := []*member{join(w), join(w)}
		sum := make([]int, 2)
		for range 200 {
			var sent [2]int
			for i, m := range shares {
				sent[i] = m.send(1 << 20)
			}
			<-time.After(25 * time.Millisecond)
			for i, m := range shares {
				sum[i] += sent[i]
				m.tookFor(sent[i], 25*time.Millisecond)
			}
		}
		require.InEpsilon(t, sum[0], sum[1], 0.1)
		for _, m := range shares {
			m.leave()
		}
		requireInFlight(t, w, 0)
	})
}

// A share whose messages hang holds no more than its part, and nothing once the
// poller does not count them any more.
func TestHangingMessagesKeepNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := grown(t)
		hanging, healthy := join(w), join(w)
		hung, done := 0, 0
		for range 100 {
			inFlight := 0
			for n := healthy.send(1 << 20); n > 0; n = healthy.send(1 << 20) {
				inFlight += n
			}
			for n := hanging.send(1 << 20); n > 0; n = hanging.send(1 << 20) {
				hung += n
			}
			<-time.After(25 * time.Millisecond)
			healthy.tookFor(inFlight, 25*time.Millisecond)
			done += inFlight
		}
		limit, _ := w.Limit()
		require.Less(t, hung, limit*6/10)
		require.Greater(t, done, 100*1000/3)
		healthy.leave()
		hanging.Yield()
		requireInFlight(t, w, hung)
		hanging.gone(hung)
		requireInFlight(t, w, 0)
	})
}

func TestLeave(t *testing.T) {
	t.Parallel()
	w := window.New()
	a, b, c := join(w), join(w), join(w)
	require.Positive(t, a.send(1<<20))
	require.Zero(t, b.send(1))
	require.Zero(t, c.send(1))
	b.leave()
	a.leave()
	require.Zero(t, b.woken, "it had left the queue")
	require.Equal(t, 1, c.woken)
	c.leave() // With what it was granted and has not fetched.
	requireInFlight(t, w, 0)
	require.Positive(t, b.send(1))
}
