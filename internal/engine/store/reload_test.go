package store_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// rowVerbs are the calls of who holds the lock of row "x", whose message waits.
func rowVerbs(ctx context.Context, q *store.Rows) map[string]func() store.Answer {
	o := store.Operation{ID: "x", Token: rowToken(2), Target: rowToken(1)}
	return map[string]func() store.Answer{
		"put":        func() store.Answer { return q.Put(ctx, xRow(farAhead))[0] },
		"put within": func() store.Answer { return q.PutWithin(ctx, time.Now().Add(soon), xRow(farAhead))[0] },
		"cancel":     func() store.Answer { return q.CancelRow(ctx, o) },
		"reschedule": func() store.Answer { return q.RescheduleRow(ctx, o, farAhead) },
	}
}

// aroundScript is a hook around the next script of a client.
type aroundScript func(run func() error) error

func (*aroundScript) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*aroundScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *aroundScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		around := *h
		if around == nil || cmd.Name() != "evalsha" && cmd.Name() != "eval" {
			return next(ctx, cmd)
		}
		*h = nil
		err := around(func() error { return next(ctx, cmd) })
		cmd.SetErr(err)
		return err
	}
}

// TestRowsEndWithReload is I11 and I12: who writes for a row has a right to do so
// that a loss may have ended. So no run of its call names another epoch than the
// first, whoever has found out that there is one.
func TestRowsEndWithReload(t *testing.T) {
	t.Parallel()
	for verb := range rowVerbs(t.Context(), nil) {
		for name, run := range map[string]func(t *testing.T, q *store.Queue, change func(), hook *aroundScript) store.Answer{
			"refused by the shard": func(t *testing.T, q *store.Queue, change func(), _ *aroundScript) store.Answer {
				change()
				return rowVerbs(t.Context(), q.Rows())[verb]()
			},
			"found by another call": func(t *testing.T, q *store.Queue, change func(), hook *aroundScript) store.Answer {
				*hook = func(func() error) error {
					change()
					_, err := q.LoadLayout(t.Context())
					require.NoError(t, err)
					return &net.OpError{Op: "dial", Err: errors.New("refused")} //nolint:err113 // it did not run
				}
				return rowVerbs(t.Context(), q.Rows())[verb]()
			},
			"found since it was pinned": func(t *testing.T, q *store.Queue, change func(), _ *aroundScript) store.Answer {
				pinned, err := q.Rows().Pin(t.Context())
				require.NoError(t, err)
				change()
				_, err = q.LoadLayout(t.Context())
				require.NoError(t, err)
				return rowVerbs(t.Context(), pinned)[verb]()
			},
		} {
			t.Run(verb+", "+name, func(t *testing.T) {
				t.Parallel()
				rdb := shared(t)
				near := storetest.New(t, rdb, 1)
				hook := new(aroundScript)
				q := again(t, near.Name(), hook)
				answered(t, store.NotFound, q.Rows().CancelRow(t.Context(), store.Operation{ID: "nobody", Token: rowToken(3), Target: rowToken(4)}))
				if verb != "put" && verb != "put within" {
					answered(t, store.Created, q.Rows().Put(t.Context(), xRow(farAhead))[0])
				}
				before := dump(t, rdb, near)
				answer := run(t, q, func() { renew(t, rdb, near) }, hook)
				require.ErrorIs(t, answer.Err, store.ErrReload)
				require.ErrorIs(t, answer.Err, store.ErrUnavailable)
				after := dump(t, rdb, near)
				require.Equal(t, before.Due, after.Due)
				require.Equal(t, before.Gone, after.Gone)
				require.NoError(t, rowVerbs(t.Context(), q.Rows())[verb]().Err, "the layout is loaded for the next call")
			})
		}
	}
}

// TestReloadAfterLostReply: the first run has happened, and the second is refused.
func TestReloadAfterLostReply(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	near := storetest.New(t, rdb, 1)
	hook := new(aroundScript)
	far := connect(t, "redis://"+rdb.Options().Addr)
	far.AddHook(hook)
	q := store.NewWithTimeout(hookedClient{far}, storetest.Prefix, near.Name(), 100*time.Millisecond)
	_, err := q.Layout(t.Context())
	require.NoError(t, err)
	*hook = func(run func() error) error {
		_ = run()
		renew(t, rdb, near)
		return errors.New("reply lost") //nolint:err113 // an error of the network
	}
	answer := q.Rows().Put(t.Context(), xRow(farAhead))[0]
	require.ErrorIs(t, answer.Err, store.ErrUnknown)
	require.ErrorIs(t, answer.Err, store.ErrReload)
}

// renew changes the layout to another one of as many shards.
func renew(t *testing.T, rdb redis.UniversalClient, q *store.Queue) {
	t.Helper()
	other := store.New(rdb, storetest.Prefix, q.Name())
	t.Cleanup(func() { storetest.Remove(context.WithoutCancel(t.Context()), rdb, q.Name(), 2) })
	for _, shards := range []int{2, 1} {
		_, err := other.Layouts().SetShards(t.Context(), shards)
		require.NoError(t, err)
	}
}
