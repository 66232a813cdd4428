package window_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delaybridge/delaybridge/internal/window"
)

// modelShare is a share, and what a correct window counts for it.
type modelShare struct {
	*member
	reserved, reservedBytes int
	waits                   bool
	wokenBefore             int
}

// TestAnyOrder does anything in any order. What is in flight is always the sum of
// what the shares hold, a share that waits is woken once there is room, and in the
// end everything is back.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := window.New()
		all := make([]*modelShare, rapid.IntRange(1, 5).Draw(t, "shares"))
		for i := range all {
			all[i] = &modelShare{member: join(w)}
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			m := rapid.SampledFrom(all).Draw(t, "share")
			m.step(t)
			m.check(t, w, all)
		}
		for _, m := range all {
			m.finish()
		}
		for _, holds := range []func() (int, int){w.InFlight, w.Kept} {
			messages, bytes := holds()
			require.Zero(t, messages)
			require.Zero(t, bytes)
		}
		// Nobody is counted who is not there: the first gets the whole window.
		limit, _ := w.Limit()
		for _, m := range all {
			m.Answered(0, 0, 0)
		}
		require.Equal(t, limit, all[0].send(1<<20))
	})
}

func (m *modelShare) step(t *rapid.T) {
	some := func(most int, label string) int { return rapid.IntRange(0, most).Draw(t, label) }
	switch rapid.SampledFrom([]string{"reserve", "reserve", "use", "use", "answered", "answered", "gone", "down", "yield", "leave"}).Draw(t, "step") {
	case "reserve":
		if m.reserved > 0 {
			return
		}
		queued := rapid.Bool().Draw(t, "queued")
		var retryAt time.Time
		m.reserved, m.reservedBytes, retryAt = m.Reserve(some(600, "want"), queued)
		m.wokenBefore = m.woken
		m.waits = m.reserved == 0 && (queued || m.waits) && retryAt.IsZero()
	case "use":
		if m.reserved == 0 {
			return
		}
		messages := some(m.reserved, "messages")
		bytes := messages * some(5000, "size")
		m.use(messages, bytes)
		m.reserved, m.reservedBytes = 0, 0
	case "answered", "gone":
		messages := some(m.flying, "done")
		if messages == 0 {
			return
		}
		bytes := m.bytes * messages / m.flying
		if rapid.Bool().Draw(t, "isAnswer") {
			m.Answered(messages, bytes, time.Duration(some(1000, "took"))*time.Millisecond)
		}
		m.free(messages, bytes)
	case "down":
		if some(5, "rarely") == 0 {
			m.Down()
		}
	case "yield":
		m.Yield()
		m.waits = false
	case "leave":
		m.finish()
	}
}

func (m *modelShare) finish() {
	m.leave()
	*m = modelShare{member: m.member, wokenBefore: m.woken}
}

func (m *modelShare) check(t *rapid.T, w *window.Window, all []*modelShare) {
	var messages, bytes, reserved, reservedBytes int
	granted, waiting := false, false
	for _, m := range all {
		messages, bytes = messages+m.flying, bytes+m.bytes
		reserved, reservedBytes = reserved+m.reserved, reservedBytes+m.reservedBytes
		granted = granted || m.woken > m.wokenBefore
		waiting = waiting || m.waits && m.woken == m.wokenBefore
	}
	inFlight, inFlightBytes := w.InFlight()
	require.Equal(t, messages, inFlight)
	require.Equal(t, bytes, inFlightBytes)
	kept, keptBytes := w.Kept()
	if !granted {
		require.Equal(t, reserved, kept)
		require.Equal(t, reservedBytes, keptBytes)
	}
	require.GreaterOrEqual(t, kept, reserved)
	require.GreaterOrEqual(t, keptBytes, reservedBytes)
	require.False(t, waiting && inFlight == 0, "a share waits though nothing is in flight")
}

// Many goroutines at once, for the race detector; and whoever waits is woken.
func TestConcurrentShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := window.New()
		done := make(chan int)
		const shares, rounds = 16, 200
		for range shares {
			go func() {
				awake := make(chan struct{}, 1)
				share := w.Join("orders", func() {
					select {
					case awake <- struct{}{}:
					default:
					}
				})
				sum := 0
				for range rounds {
					messages, _, _ := share.Reserve(10, true)
					for messages == 0 {
						<-awake
						messages, _, _ = share.Reserve(10, true)
					}
					share.Hold(messages, messages*each, true)
					<-time.After(time.Millisecond)
					w.Answered(messages, messages*each, time.Millisecond)
					share.Hold(0, 0, false)
					sum += messages
				}
				share.Leave()
				done <- sum
			}()
		}
		for range shares {
			require.Positive(t, <-done)
		}
		requireInFlight(t, w, 0)
	})
}
