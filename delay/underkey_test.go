package delay_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// forgetsKey makes each call that names a message, without the Key that it has.
func forgetsKey(t *testing.T, client *delay.Client, id string) map[string]error {
	t.Helper()
	ref := delay.Ref{ID: id}
	_, get := client.Get(t.Context(), ref)
	return map[string]error{
		"get": get, "cancel": client.Cancel(t.Context(), ref), "reschedule": client.Reschedule(t.Context(), ref, delay.After(0)),
		"publish now": client.PublishNow(t.Context(), ref),
	}
}

// TestKeyForgotten has calls that forget the Key say so, if the message waits and where it
// is dead, and leave it alone.
func TestKeyForgotten(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(testing.TB, message.SinkType) *place{"redis": newPlace, "in-process": newFakePlace} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := place(t, kafka)
			client := p.client(t)
			for id, when := range map[string]delay.When{"dead": delay.At(time.Unix(1, 0)), "waits": delay.After(time.Hour)} {
				_, err := client.Schedule(t.Context(), delay.Message{ID: id, Key: "order-42", Topic: "t"}, when)
				require.NoError(t, err)
			}
			p.finish(t, buried)
			for _, id := range []string{"waits", "dead"} {
				for verb, err := range forgetsKey(t, client, id) {
					require.ErrorIs(t, err, delay.ErrInvalid, "%s of what is %s", verb, id)
					require.NotErrorIs(t, err, delay.ErrNotFound)
					wrong := new(message.InvalidError)
					require.ErrorAs(t, err, &wrong)
					require.Equal(t, "key", wrong.Field)
					require.ErrorContains(t, err, fmt.Sprintf("the id %q is there under the key %q", id, "order-42"))
				}
				require.NoError(t, client.Cancel(t.Context(), delay.Ref{ID: id, Key: "order-42"}))
				for verb, err := range forgetsKey(t, client, id) {
					require.True(t, err == delay.ErrNotFound, "%s: %v: all was looked through", verb, err) //nolint:errorlint,testifylint // No text is added.
				}
			}
		})
	}
}

// TestKeyForgottenIsBounded: a queue that is long is not read again and again.
func TestKeyForgottenIsBounded(t *testing.T) {
	t.Parallel()
	p := newPlace(t, kafka)
	client := p.client(t)
	const many = 5_000
	requests := make([]delay.Request, many)
	for i := range requests {
		m := delay.Message{ID: fmt.Sprint(i), Key: "k", Topic: "t"}
		requests[i] = delay.Request{Message: m, When: delay.After(time.Hour + time.Duration(i)*time.Second)}
	}
	results, err := client.ScheduleBatch(t.Context(), requests)
	require.NoError(t, err)
	require.NoError(t, results[many-1].Err)
	require.ErrorIs(t, client.Cancel(t.Context(), delay.Ref{ID: "0"}), delay.ErrInvalid)
	err = client.Cancel(t.Context(), delay.Ref{ID: fmt.Sprint(many - 1)})
	require.ErrorIs(t, err, delay.ErrNotFound)
	require.ErrorContains(t, err, "under other keys was incomplete")

	began, looked := time.Now(), 2
	for range 500 {
		err := client.Cancel(t.Context(), delay.Ref{ID: "0"})
		if errors.Is(err, delay.ErrInvalid) {
			looked++
		} else {
			require.ErrorIs(t, err, delay.ErrNotFound)
		}
	}
	t.Logf("%d looks in %v", looked, time.Since(began))
	// A look reads up to 1,000 messages, and ever fewer as what is left of the budget ends: at
	// the end 8, for which it spends 24 of the 2,000 a second.
	require.LessOrEqual(t, looked, 100+int(100*time.Since(began).Seconds()))
}

// TestKeyForgottenInALongLayout asks some of the shards, and says so.
func TestKeyForgottenInALongLayout(t *testing.T) {
	t.Parallel()
	p := &place{rdb: newPlace(t, kafka).rdb}
	p.queue = store.New(p.rdb, "delay", fmt.Sprintf("q%d", time.Now().UnixNano()))
	_, err := p.queue.Layouts().Ensure(t.Context(), store.Layout{Shards: 300, Sink: kafka, MaxMessage: message.DefaultMaxSize})
	require.NoError(t, err)
	err = p.client(t).Cancel(t.Context(), delay.Ref{ID: "x"})
	require.ErrorIs(t, err, delay.ErrNotFound)
	require.ErrorContains(t, err, "was incomplete")
}
