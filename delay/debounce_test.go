package delay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// nextMs waits until Redis' clock is in another millisecond.
func (w world) nextMs(t *testing.T) {
	t.Helper()
	began, err := w.rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	for now := began; now.UnixMilli() == began.UnixMilli(); {
		now, err = w.rdb.Time(t.Context()).Result()
		require.NoError(t, err)
	}
}

// TestDebounce puts a message off again and again, but never further than its bound after the first schedule.
func TestDebounce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, message.NATS)
	client, ref := w.client(t, delay.WithConflict(delay.Replace)), delay.Ref{ID: "a"}
	schedule := func(body string, when delay.When) (delay.Result, delay.Info) {
		t.Helper()
		result, err := client.Schedule(t.Context(), delay.Message{ID: "a", Topic: "t", Body: []byte(body)}, when)
		require.NoError(t, err)
		info, err := client.Get(t.Context(), ref)
		require.NoError(t, err)
		require.Equal(t, body, string(info.Message.Body), "the last one's content")
		require.Equal(t, result.DueAt, info.DueAt)
		w.nextMs(t)
		return result, info
	}
	const hour = time.Hour
	first, was := schedule("1", delay.After(hour).MaxWait(hour))
	require.Equal(t, delay.Created, first.Status)
	require.Equal(t, was.ScheduledAt.Add(hour), first.DueAt)
	later, info := schedule("2", delay.After(hour).MaxWait(30*24*hour))
	require.Equal(t, delay.Replaced, later.Status)
	require.Greater(t, later.DueAt, first.DueAt, "it is put off")
	require.Greater(t, info.ScheduledAt, was.ScheduledAt)
	require.Empty(t, info.Message.Headers)
	capped, _ := schedule("3", delay.After(hour).MaxWait(hour))
	require.Equal(t, first.DueAt, capped.DueAt, "an hour after the first one")
	anew, _ := schedule("4", delay.After(hour))
	require.Greater(t, anew.DueAt, first.DueAt, "without a bound")
	next, info := schedule("5", delay.After(hour).MaxWait(hour))
	require.Equal(t, info.ScheduledAt.Add(hour), next.DueAt, "the first one again")
	require.NoError(t, client.Cancel(t.Context(), ref))
	again, info := schedule("6", delay.After(hour).MaxWait(hour))
	require.Equal(t, delay.Created, again.Status)
	require.Equal(t, info.ScheduledAt.Add(hour), again.DueAt, "and again")
}

// TestFirstAt: consumers are told when the first one was scheduled, also of a message with tags that was rescheduled.
func TestFirstAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, message.NATS)
	client, ref := w.client(t, delay.WithConflict(delay.Replace)), delay.Ref{ID: "a"}
	m := delay.Message{ID: "a", Topic: "t", Tags: []string{"tag"}, Headers: map[string]string{"own": "x"}}
	_, err := client.Schedule(t.Context(), m, delay.After(time.Hour).MaxWait(time.Hour))
	require.NoError(t, err)
	info, err := client.Get(t.Context(), ref)
	require.NoError(t, err)
	w.nextMs(t)
	require.NoError(t, client.Reschedule(t.Context(), ref, delay.After(2*time.Hour)))
	_, err = client.Schedule(t.Context(), m, delay.After(0).MaxWait(time.Hour))
	require.NoError(t, err)
	headers := map[string]string{}
	w.nextMs(t) // It is due at the end of this one.
	for _, claim := range w.claim(t) {
		for _, m := range claim.Messages {
			for _, h := range m.PublishedHeaders() {
				headers[h.Name] = h.Value
			}
		}
	}
	require.Equal(t, info.ScheduledAt.UTC().Format(message.TimeFormat), headers[delay.HeaderFirstAt])
	require.Equal(t, "x", headers["own"])
	require.Equal(t, "tag", headers[delay.HeaderTags])
	m.Headers = map[string]string{delay.HeaderFirstAt: "1"}
	_, err = client.Schedule(t.Context(), m, delay.After(0))
	require.ErrorIs(t, err, delay.ErrInvalid)
}

// writes tells of each write that has the text.
type writes struct {
	net.Conn

	text string
	told chan struct{}
}

func (w writes) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(w.text)) {
		w.told <- struct{}{}
	}
	return w.Conn.Write(b)
}

// TestDebounceInFlight: what a call reports while the message is being published must not be lost.
func TestDebounceInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, message.NATS)
	m, when := delay.Message{ID: "debounced", Topic: "t"}, delay.After(time.Hour).MaxWait(time.Hour)
	_, err := w.client(t).Schedule(t.Context(), m, delay.At(time.UnixMilli(1000)))
	require.NoError(t, err)
	claims := w.claim(t)
	impatient := w.client(t, delay.WithConflict(delay.Replace), delay.WithTimeout(2*time.Second))
	for range 30 {
		if _, err = impatient.Schedule(t.Context(), m, when); !errors.Is(err, delay.ErrUnknown) {
			break // Otherwise the machine was busy, and the last try got no answer in time.
		}
	}
	require.ErrorIs(t, err, delay.ErrTooLate)

	told := make(chan struct{}, 1000)
	rdb := redis.NewClient(&redis.Options{Addr: w.rdb.Options().Addr, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return writes{conn, m.ID, told}, err
	}})
	defer func() { require.NoError(t, rdb.Close()) }()
	client, err := delay.NewClient(rdb, "orders", delay.WithPrefix(w.prefix), delay.WithConflict(delay.Replace), delay.WithTimeout(30*time.Second))
	require.NoError(t, err)
	type answer struct {
		result delay.Result
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		result, err := client.Schedule(t.Context(), m, when)
		done <- answer{result, err}
	}()
	<-told
	<-told // The first one met the message in flight.
	w.settle(t, claims, message.Verdict{Verb: message.VerbAck, Published: true})
	got := <-done
	require.NoError(t, got.err)
	require.Equal(t, delay.Created, got.result.Status)
}

// TestDebounceInvalid: a bound that could never hold is refused.
func TestDebounceInvalid(t *testing.T) {
	t.Parallel()
	client, m := newWorld(t, message.NATS).client(t, delay.WithConflict(delay.Replace)), delay.Message{ID: "a", Topic: "t"}
	for name, when := range map[string]delay.When{
		"less than the delay": delay.After(time.Hour).MaxWait(time.Minute),
		"negative":            delay.After(0).MaxWait(-1),
		"both negative":       delay.After(-5).MaxWait(-1),
		"without end":         delay.After(0).MaxWait(1 << 62),
		"an instant":          delay.At(time.Now()).MaxWait(time.Hour),
	} {
		_, err := client.Schedule(t.Context(), m, when)
		require.ErrorIs(t, err, delay.ErrInvalid, name)
		require.ErrorContains(t, err, "max_wait", name)
	}
	for i := range 50 {
		m.ID = fmt.Sprint("spread", i)
		result, err := client.Schedule(t.Context(), m, delay.After(time.Hour).Spread(time.Hour).MaxWait(time.Hour))
		require.NoError(t, err, "whatever the identity adds")
		info, err := client.Get(t.Context(), delay.Ref{ID: m.ID})
		require.NoError(t, err)
		require.Equal(t, info.ScheduledAt.Add(time.Hour), result.DueAt)
	}
	when := delay.After(time.Minute).MaxWait(time.Hour)
	results, err := client.ScheduleBatch(t.Context(), []delay.Request{{Message: m, When: when, Conflict: delay.Keep}})
	require.NoError(t, err)
	require.ErrorIs(t, results[0].Err, delay.ErrInvalid)
	require.ErrorContains(t, results[0].Err, "max_wait")
	require.ErrorIs(t, client.Reschedule(t.Context(), delay.Ref{ID: "a"}, when), delay.ErrInvalid)
}
