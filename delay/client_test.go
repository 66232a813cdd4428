package delay_test

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestBatchKeepsItsMates(t *testing.T) {
	t.Parallel()
	client := newWorld(t, message.NATS).client(t)
	requests := make([]delay.Request, 2500) // More than a script takes.
	for i := range requests {
		requests[i] = delay.Request{Message: delay.Message{Topic: "t", Body: make([]byte, 1000)}, When: delay.After(time.Hour)}
	}
	requests[7].Message.Topic = ""
	requests[8].Message.ID, requests[9].Message.ID = "twice", "twice"
	results, err := client.ScheduleBatch(t.Context(), requests)
	require.NoError(t, err)
	for i, result := range results {
		switch i {
		case 7:
			require.ErrorIs(t, result.Err, delay.ErrInvalid)
		case 9:
			require.ErrorIs(t, result.Err, delay.ErrDuplicate)
		default:
			require.NoError(t, result.Err, i)
			assert.Equal(t, delay.Created, result.Status)
		}
	}
	empty, err := client.ScheduleBatch(t.Context(), nil)
	require.NoError(t, err)
	assert.Empty(t, empty)
}

func TestDueTimesRoundUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, message.NATS)
	client := w.client(t)
	for _, c := range []struct{ after, want time.Duration }{
		{1500 * time.Microsecond, 2 * time.Millisecond}, {time.Hour, time.Hour}, {0, 0}, {-time.Hour, 0}, {time.Nanosecond, time.Millisecond},
	} {
		result, err := client.Schedule(t.Context(), delay.Message{Topic: "t"}, delay.After(c.after))
		require.NoError(t, err)
		info, err := client.Get(t.Context(), result.Ref)
		require.NoError(t, err)
		assert.Equal(t, c.want, info.DueAt.Sub(info.ScheduledAt), c.after)
		assert.Equal(t, info.DueAt, result.DueAt)
	}
	at := time.UnixMilli(2_000_000_000_000).Add(time.Microsecond)
	result, err := client.Schedule(t.Context(), delay.Message{Topic: "t"}, delay.At(at))
	require.NoError(t, err)
	assert.Equal(t, time.UnixMilli(2_000_000_000_001), result.DueAt)
}

func TestIdentityIsKeyAndID(t *testing.T) {
	t.Parallel()
	client := newWorld(t, message.NATS).client(t)
	for _, key := range []string{"", "k1", "k2"} {
		_, err := client.Schedule(t.Context(), delay.Message{ID: "a", Key: key, Topic: "t", Body: []byte(key)}, delay.After(time.Hour))
		require.NoError(t, err)
	}
	require.NoError(t, client.Cancel(t.Context(), delay.Ref{ID: "a", Key: "k1"}))
	_, err := client.Get(t.Context(), delay.Ref{ID: "a", Key: "k1"})
	require.ErrorIs(t, err, delay.ErrNotFound)
	info, err := client.Get(t.Context(), delay.Ref{ID: "a", Key: "k2"})
	require.NoError(t, err)
	assert.Equal(t, "k2", string(info.Body))
	assert.Equal(t, delay.Message{ID: "a", Key: "k2", Topic: "t", Body: []byte("k2")}, info.Message)
}

// claim takes everything that is due, as a bridge does.
func (w world) claim(t *testing.T) map[int]message.Claim {
	t.Helper()
	claims := map[int]message.Claim{}
	for shard := range 4 {
		claim, err := w.queue.Shard(shard).Claim(t.Context(), message.ClaimRequest{
			Token: message.ClaimToken{Instance: "test", Number: 1}, Max: 10, Timeout: time.Minute, Lease: time.Minute,
		})
		require.NoError(t, err)
		claims[shard] = claim
	}
	return claims
}

func (w world) settle(t *testing.T, claims map[int]message.Claim, verdict message.Verdict) {
	t.Helper()
	for shard, claim := range claims {
		verdicts := make([]message.Verdict, len(claim.Messages))
		for i := range verdicts {
			verdicts[i] = verdict
		}
		_, err := w.queue.Shard(shard).Settle(t.Context(), message.Settlement{Claim: claim, Verdicts: verdicts})
		require.NoError(t, err)
	}
}

func TestAnswersInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, message.NATS)
	client, ref := w.client(t), delay.Ref{ID: "a"}
	m := delay.Message{ID: "a", Topic: "t"}
	_, err := client.Schedule(t.Context(), m, delay.At(time.UnixMilli(1000)))
	require.NoError(t, err)
	claims := w.claim(t)
	require.ErrorIs(t, client.Cancel(t.Context(), ref), delay.ErrTooLate)
	require.ErrorIs(t, client.Reschedule(t.Context(), ref, delay.After(time.Hour)), delay.ErrTooLate)
	_, err = client.Schedule(t.Context(), m, delay.At(time.UnixMilli(1000)))
	require.ErrorIs(t, err, delay.ErrDuplicate)
	_, err = w.client(t, delay.WithConflict(delay.Replace)).Schedule(t.Context(), m, delay.At(time.UnixMilli(1000)))
	require.ErrorIs(t, err, delay.ErrTooLate)
	info, err := client.Get(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, delay.InFlight, info.State)
	w.settle(t, claims, message.Verdict{Verb: message.VerbAck, Published: true})
	require.ErrorIs(t, client.Cancel(t.Context(), ref), delay.ErrNotFound)
	_, err = client.Schedule(t.Context(), m, delay.After(time.Hour))
	require.NoError(t, err, "the identity is free again")
}

func TestAnswersMaybePublished(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*delay.Client, delay.Ref) error{
		"cancel": func(c *delay.Client, ref delay.Ref) error { return c.Cancel(t.Context(), ref) },
		"reschedule": func(c *delay.Client, ref delay.Ref) error {
			return c.Reschedule(t.Context(), ref, delay.After(time.Hour))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, message.NATS)
			client, ref := w.client(t), delay.Ref{ID: "a"}
			_, err := client.Schedule(t.Context(), delay.Message{ID: "a", Topic: "t"}, delay.At(time.UnixMilli(1000)))
			require.NoError(t, err)
			w.settle(t, w.claim(t), message.Verdict{
				Verb: message.VerbRelease, Published: true, Attempts: message.Attempts{Begun: 1, MaybeOut: 1},
			})
			require.ErrorIs(t, change(client, ref), delay.ErrMaybePublished)
			if name == "cancel" {
				require.ErrorIs(t, client.Cancel(t.Context(), ref), delay.ErrNotFound)
			}
		})
	}
}

func TestAnswersDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, message.NATS)
	client, ref := w.client(t), delay.Ref{ID: "a"}
	m := delay.Message{ID: "a", Topic: "t", Body: []byte("b")}
	_, err := client.Schedule(t.Context(), m, delay.At(time.UnixMilli(1000)))
	require.NoError(t, err)
	w.settle(t, w.claim(t), message.Verdict{
		Verb: message.VerbDeadLetter, Reason: "permanent too_large", Attempts: message.Attempts{Begun: 1, Failures: 1},
	})
	_, err = client.Schedule(t.Context(), m, delay.At(time.UnixMilli(1000)))
	require.ErrorIs(t, err, delay.ErrDuplicate)
	require.ErrorContains(t, err, "in the dead letters: permanent too_large")
	info, err := client.Get(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, delay.Dead, info.State)
	assert.Equal(t, "permanent too_large", info.Reason)
	assert.Equal(t, "b", string(info.Body))
	require.NoError(t, client.Reschedule(t.Context(), ref, delay.After(time.Hour)), "a redrive")
	info, err = client.Get(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, delay.Scheduled, info.State)
}

func TestNoLayout(t *testing.T) {
	t.Parallel()
	client, err := delay.NewClient(newWorld(t, message.NATS).rdb, "orders", delay.WithPrefix(testenv.Name(t, "none")))
	require.NoError(t, err)
	_, err = client.Schedule(t.Context(), delay.Message{Topic: "t"}, delay.After(0))
	require.ErrorIs(t, err, delay.ErrNoLayout)
	require.ErrorIs(t, client.Cancel(t.Context(), delay.Ref{ID: "a"}), delay.ErrNoLayout)
	_, err = client.Get(t.Context(), delay.Ref{ID: "a"})
	require.ErrorIs(t, err, delay.ErrNoLayout)
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer func() { assert.NoError(t, rdb.Close()) }()
	client, err := delay.NewClient(rdb, "orders", delay.WithTimeout(300*time.Millisecond))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for name, call := range map[string]func() error{
		"schedule": func() error {
			result, err := client.Schedule(ctx, delay.Message{Topic: "t"}, delay.After(0))
			assert.NotEmpty(t, result.Ref.ID)
			return err
		},
		"cancel":     func() error { return client.Cancel(ctx, delay.Ref{ID: "a"}) },
		"reschedule": func() error { return client.Reschedule(ctx, delay.Ref{ID: "a"}, delay.After(0)) },
		"get":        func() error { _, err := client.Get(ctx, delay.Ref{ID: "a"}); return err },
	} {
		require.ErrorIs(t, call(), delay.ErrUnavailable, name)
	}
	require.NoError(t, ctx.Err(), "the client's own timeout ends the calls")
}

// TestNewClientDoesNothing: no I/O, so that it works before Redis does.
func TestNewClientDoesNothing(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("dialled")
	}})
	defer func() { assert.NoError(t, rdb.Close()) }()
	_, err := delay.NewClient(rdb, "orders")
	require.NoError(t, err)
	assert.Zero(t, rdb.PoolStats().Misses)
}

// TestImports: who imports the SDK gets Redis, cron expressions, the API of traces, and nothing else.
func TestImports(t *testing.T) {
	t.Parallel()
	output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/delaybridge/delaybridge/delay").Output()
	require.NoError(t, err)
	allowed := []string{
		"github.com/delaybridge/delaybridge/", "github.com/redis/go-redis/", "github.com/oklog/ulid/", "github.com/netresearch/go-cron",
		"github.com/cespare/xxhash/", "go.uber.org/atomic", "go.opentelemetry.io/otel/", "golang.org/x/s", "vendor/golang.org/",
	}
	for path := range strings.FieldsSeq(string(output)) {
		if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") && first != "vendor" {
			continue // The standard library.
		}
		known := false
		for _, prefix := range allowed {
			known = known || strings.HasPrefix(path, prefix)
		}
		assert.True(t, known, path)
		assert.NotContains(t, path, "/sinks")
	}
}
