package delaytest_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/delaytest"
)

// TestAdvance lets 30 days pass: all is published at its due time, in due order, what
// a consumer schedules meanwhile too.
func TestAdvance(t *testing.T) {
	t.Parallel()
	start := time.Date(2027, time.January, 31, 9, 0, 0, 0, time.UTC)
	q := delaytest.New(t, "orders", delaytest.WithStart(start))
	q.Handle("order.reminder", func(p delaytest.Published) {
		_, err := q.Schedule(t.Context(), delay.Message{ID: p.ID + "/again", Topic: "mail"}, delay.After(12*time.Hour))
		require.NoError(t, err)
	})
	for _, days := range []int{30, 7, 31, 1} {
		m := delay.Message{ID: fmt.Sprintf("day %d", days), Topic: "order.reminder"}
		_, err := q.Schedule(t.Context(), m, delay.After(time.Duration(days)*24*time.Hour))
		require.NoError(t, err)
	}
	published := q.Advance(30*24*time.Hour + 12*time.Hour)
	var lines []string
	for _, p := range published {
		assert.Equal(t, p.DueAt, p.At)
		lines = append(lines, p.ID+" after "+p.At.Sub(start).String())
	}
	assert.Equal(t, []string{
		"day 1 after 24h0m0s", "day 1/again after 36h0m0s", "day 7 after 168h0m0s", "day 7/again after 180h0m0s",
		"day 30 after 720h0m0s", "day 30/again after 732h0m0s",
	}, lines)
	assert.Equal(t, start.Add(732*time.Hour), q.Now())
	q.RequireScheduled("order.reminder", delay.At(start.Add(31*24*time.Hour)))
	assert.Equal(t, "day 30/again", q.RequirePublished("mail").ID)
	assert.Empty(t, q.Advance(0))
	assert.Len(t, q.Published("mail", "order.reminder"), 6)
}

// recorder is a test of which somebody else sees the end.
type recorder struct {
	testing.TB

	text string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failing is what a test says that fails.
func failing(t *testing.T, run func(q *delaytest.Queue)) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		start := time.Date(2027, time.January, 31, 9, 0, 0, 0, time.UTC)
		q := delaytest.New(r, "orders", delaytest.WithStart(start))
		_, err := q.Schedule(t.Context(), delay.Message{ID: "order-42", Key: "k", Topic: "order.timeout", Body: []byte("secret")}, delay.After(30*time.Minute))
		assert.NoError(t, err)
		_, err = q.Schedule(t.Context(), delay.Message{ID: "now", Topic: "mail"}, delay.After(0))
		assert.NoError(t, err)
		run(q)
	}()
	<-done
	assert.NotContains(t, r.text, "secret")
	return r.text
}

// TestMessages is what a test is told: what was wanted, and what is there.
func TestMessages(t *testing.T) {
	t.Parallel()
	const waiting = "waiting are:\n  mail  now  due now (2027-01-31T09:00:00.000Z)\n" +
		"  order.timeout  order-42 (key k)  due in 30m (2027-01-31T09:30:00.000Z)"
	for want, run := range map[string]func(q *delaytest.Queue){
		`no message to "order.timeout" waits, due in 15m (2027-01-31T09:15:00.000Z); ` + waiting: func(q *delaytest.Queue) {
			q.RequireScheduled("mail", delaytest.AnyTime)
			q.RequireScheduled("mail", delay.After(0))
			q.RequireScheduled("order.timeout", delay.At(q.Now().Add(30*time.Minute+time.Second)))
			q.RequireScheduled("order.timeout", delay.After(15*time.Minute))
		},
		`no message to "typo" waits; ` + waiting: func(q *delaytest.Queue) { q.RequireScheduled("typo", delaytest.AnyTime) },
		`no message should wait to order.timeout; waiting are:`: func(q *delaytest.Queue) {
			q.RequireNotScheduled("typo")
			q.RequireNotScheduled("order.timeout")
		},
		`nothing was published to "mail"; nothing was published; ` + waiting + "; nothing is dead": func(q *delaytest.Queue) {
			q.RequireNotPublished()
			q.RequirePublished("mail")
		},
		"nothing should be published to mail; published were:\n  mail  now  at 1m ago (2027-01-31T09:00:00.000Z)": func(q *delaytest.Queue) {
			q.Advance(time.Minute)
			q.RequirePublished("mail")
			q.RequireNotPublished("order.timeout")
			q.RequireNotPublished("mail")
		},
		"no message should be dead; dead are:\n  order.timeout  order-42 (key k)  due 30m ago (2027-01-31T09:30:00.000Z)  no such topic": func(q *delaytest.Queue) {
			assert.NoError(t, q.Cancel(t.Context(), delay.Ref{ID: "now"}))
			q.Refuse("order.timeout", "no such topic")
			q.Advance(time.Hour)
			q.RequireNothing("mail")
			q.RequireNothing()
		},
		"no message should wait; waiting are:":         func(q *delaytest.Queue) { q.RequireNothing() },
		"advance by -1ns: time does not run backwards": func(q *delaytest.Queue) { q.Advance(-1) },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			assert.Contains(t, failing(t, run), "delaytest: "+want)
		})
	}
}

// TestSynctest works in a bubble, whose clock is another one.
func TestSynctest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := delaytest.New(t, "orders")
		began := time.Now()
		_, err := q.Schedule(t.Context(), delay.Message{Topic: "mail"}, delay.At(began.Add(time.Hour)))
		require.NoError(t, err)
		time.Sleep(time.Hour) //nolint:forbidigo // It takes no time here.
		q.RequireScheduled("mail", delay.After(time.Hour))
		q.Advance(time.Since(began))
		q.RequirePublished("mail")
	})
}

// TestClocksAgree moves the clock far, after the client has learnt it and before its
// next call: nothing is refused for that, and due times are exact.
func TestClocksAgree(t *testing.T) {
	t.Parallel()
	q := delaytest.New(t, "orders")
	for i := range 20 {
		result, err := q.Schedule(t.Context(), delay.Message{ID: fmt.Sprint(i), Topic: "mail"}, delay.After(time.Hour))
		require.NoError(t, err)
		require.Equal(t, q.Now().Add(time.Hour), result.DueAt)
		q.Advance(30 * 24 * time.Hour)
	}
	require.Len(t, q.Published(), 20)
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		delaytest.New(b, "orders")
	}
}

func BenchmarkScheduleAndPublish(b *testing.B) {
	q := delaytest.New(b, "orders")
	for b.Loop() {
		if _, err := q.Schedule(b.Context(), delay.Message{Topic: "mail"}, delay.After(0)); err != nil {
			b.Fatal(err)
		}
		q.Advance(0)
	}
}
