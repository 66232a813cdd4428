package delay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// TestOnce makes named calls by two clients, as two processes do: each has one effect, and both get its answer.
func TestOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, message.NATS)
	one, two := w.client(t), w.client(t)
	m, ref := delay.Message{ID: "a", Key: "k", Topic: "t"}, delay.Ref{ID: "a", Key: "k"}
	name := func(name string) delay.CallOption { return delay.Once(name, time.Hour) }

	first, err := one.Schedule(t.Context(), m, delay.At(time.UnixMilli(1000)), name("n"))
	require.NoError(t, err)
	require.Equal(t, delay.Created, first.Status)
	w.settle(t, w.claim(t), message.Verdict{Verb: message.VerbAck, Published: true})
	again, err := two.Schedule(t.Context(), m, delay.At(time.UnixMilli(1000)), name("n"))
	require.NoError(t, err)
	require.Equal(t, first, again)
	_, err = one.Get(t.Context(), ref)
	require.ErrorIs(t, err, delay.ErrNotFound, "it was published, and is not scheduled again")

	_, err = one.Schedule(t.Context(), m, delay.After(time.Hour), name("another"))
	require.NoError(t, err, "another name is another call")
	_, err = one.Schedule(t.Context(), m, delay.After(time.Hour), name("late"))
	require.ErrorIs(t, err, delay.ErrDuplicate)
	require.NoError(t, one.Reschedule(t.Context(), ref, delay.After(2*time.Hour), name("n")), "a name belongs to a verb")
	require.NoError(t, one.Cancel(t.Context(), ref, name("n")))
	require.NoError(t, two.Cancel(t.Context(), ref, name("n")), "what the first one has answered")
	require.ErrorIs(t, two.Cancel(t.Context(), ref, name("m")), delay.ErrNotFound)
	_, err = two.Schedule(t.Context(), m, delay.After(time.Hour), name("late"))
	require.ErrorIs(t, err, delay.ErrDuplicate, "a refusal is kept, too")
}

func TestOnceInvalid(t *testing.T) {
	t.Parallel()
	client := newWorld(t, message.NATS).client(t)
	for limit, option := range map[string]delay.CallOption{
		"a name of 1 to 255 bytes": delay.Once("", time.Hour),
		"255":                      delay.Once(strings.Repeat("n", 256), time.Hour),
		"from 1m0s":                delay.Once("n", time.Second),
		"to 720h0m0s":              delay.Once("n", 31*24*time.Hour),
	} {
		_, err := client.Schedule(t.Context(), delay.Message{ID: "a", Topic: "t"}, delay.After(0), option)
		require.ErrorIs(t, err, delay.ErrInvalid)
		require.ErrorContains(t, err, limit)
	}
	_, err := client.Schedule(t.Context(), delay.Message{Topic: "t"}, delay.After(0), delay.Once("n", time.Hour))
	require.ErrorIs(t, err, delay.ErrInvalid)
	require.ErrorContains(t, err, "ID")
}
