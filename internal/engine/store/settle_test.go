package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// claimSome claims until something is due: a retry is, within a millisecond.
func (b *bridge) claimSome(most int) (claim message.Claim) {
	b.t.Helper()
	for len(claim.Messages) == 0 {
		claim = b.claim(most)
	}
	return claim
}

// TestEmptyHistoryIsForgotten: what is kept of the attempts is the promised due
// time only, and the message goes back to where its score tells that.
func TestEmptyHistoryIsForgotten(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]message.Verdict{"released": released, "parked": parked} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := shared(t)
			q := storetest.New(t, rdb, 1)
			b := newBridge(t, q)
			for i := range 20 {
				create(t, q, fmt.Sprint(i), past())
			}
			b.settle(b.claim(20), message.Verdict{Verb: message.VerbRetry})
			require.Len(t, sound(t, rdb, q).Attempts, 20)
			for left := 20; left > 0; {
				claim := b.claimSome(20)
				for _, m := range claim.Messages {
					require.Equal(t, past().Ms, m.DueAt.UnixMilli(), "as promised")
				}
				b.settle(claim, back)
				left -= len(claim.Messages)
			}
			require.Empty(t, sound(t, rdb, q).Attempts)
		})
	}
}

// TestFewTriedAmongMany are claimed and acknowledged together: each keeps its own history.
func TestFewTriedAmongMany(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	create(t, q, "tried", past())
	create(t, q, "later", past())
	claim := b.claim(2)
	b.settle(claim, unknown)
	require.Equal(t, store.DoneMaybePublished, reschedule(t, q, "later", later()))
	for i := range 40 {
		create(t, q, fmt.Sprint(i), past())
	}
	claim = b.claim(100)
	require.Len(t, claim.Messages, 41)
	for _, m := range claim.Messages {
		require.Equal(t, m.ID == "tried", m.Attempts == unknown.Attempts, m.ID)
		require.Equal(t, m.ID != "tried", m.Attempts == message.Attempts{}, m.ID)
	}
	b.settle(claim, acked)
	require.Equal(t, map[string]string{"later": unknown.Attempts.String()}, sound(t, rdb, q).Attempts)
}

// scriptLoss is a hook that loses runs of one script: before they run, or their replies.
type scriptLoss struct {
	sha  string
	runs bool
	lost int
}

// DialHook implements [redis.Hook].
func (*scriptLoss) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (u *scriptLoss) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" || cmd.Args()[1] != u.sha || u.lost > 0 {
			return next(ctx, cmd)
		}
		u.lost++
		if u.runs {
			if err := next(ctx, cmd); err != nil {
				return err
			}
		}
		cmd.SetErr(errKilled)
		return errKilled
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (*scriptLoss) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestStaleSettleDiesHalfway: a settle that comes too late is two scripts, and
// the second one is lost, or its reply. What ended the claim has marked its
// messages: nothing is lost, comes twice, or is answered wrongly.
func TestStaleSettleDiesHalfway(t *testing.T) {
	t.Parallel()
	for name, runs := range map[string]bool{"before the mark": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := shared(t)
			q := storetest.New(t, rdb, 1)
			require.NoError(t, rdb.ScriptLoad(t.Context(), scriptSources()["mark"]).Err())
			hook := &scriptLoss{sha: scriptSHA("mark"), runs: runs}
			dying := again(t, q.Name(), hook)
			_, err := dying.Layouts().Ensure(t.Context(), storetest.Layout(1))
			require.NoError(t, err)
			b := newBridge(t, q)
			for _, id := range []string{"acked", "released", "cancelled"} {
				create(t, q, id, past())
			}
			claim := b.claim(10)
			_, _, err = q.Shard(0).Reclaim(t.Context(), message.Reclaim{Instance: b.Instance, Stray: claim.Token})
			require.NoError(t, err)

			late := settlement(claim, acked)
			late.Verdicts[2] = released
			_, err = dying.Shard(0).Settle(t.Context(), late)
			require.ErrorIs(t, err, errKilled)
			require.Equal(t, 1, hook.lost)
			require.Len(t, sound(t, rdb, q).Due, 3, "all wait")
			require.Equal(t, store.DoneMaybePublished, cancel(t, q, "cancelled"), "if its bridge never asks again")
			late.Repeated = true
			stale, err := dying.Shard(0).Settle(t.Context(), late)
			require.NoError(t, err)
			require.True(t, stale)
			s := sound(t, rdb, q)
			require.Len(t, s.Due, 2, "what was cancelled stays so")
			again := b.claim(10)
			require.Len(t, again.Messages, 2)
			for _, m := range again.Messages {
				require.Positive(t, m.Attempts.MaybeOut, m.ID)
				require.Equal(t, 2, m.Attempt, "one earlier attempt, however often it was marked")
			}
			b.settle(again, acked)
			require.EqualValues(t, 2, sound(t, rdb, q).Counter("published"))
			require.EqualValues(t, 2, sound(t, rdb, q).Counter("suspected_duplicates"))
		})
	}
}
