package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestPoison stores what cannot be read; its mates must not suffer.
func TestPoison(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	msg := storetest.Key(q.Name(), 0, "msg")
	for _, id := range []string{"1-fine", "2-missing", "3-garbage", "4-version", "5-attempts", "6-fine"} {
		create(t, q, id, past())
	}
	good := rdb.HGet(t.Context(), msg, "1-fine").Val()
	require.NoError(t, rdb.HDel(t.Context(), msg, "2-missing").Err())
	require.NoError(t, rdb.HSet(t.Context(), msg, "3-garbage", "\xff\x00garbage").Err())
	require.NoError(t, rdb.HSet(t.Context(), msg, "4-version", "9"+good[1:]).Err())
	require.NoError(t, rdb.HSet(t.Context(), storetest.Key(q.Name(), 0, "attempts"), "5-attempts", "one two").Err())

	found, ok, err := inspect.Get(t.Context(), q, "2-missing", "")
	require.NoError(t, err)
	require.True(t, ok)
	require.ErrorIs(t, found.Err, message.ErrMissingBody)

	claim := b.claim(10)
	require.Len(t, claim.Messages, 6)
	for i, want := range []error{
		nil, message.ErrMissingBody, message.ErrUndecodable, message.ErrUndecodable, message.ErrUndecodable, nil,
	} {
		m := claim.Messages[i]
		require.ErrorIs(t, m.Err, want, m.ID)
		require.Equal(t, m.ID, m.Member)
		require.Equal(t, past().Ms, m.DueAt.UnixMilli())
		require.Equal(t, q.Name(), m.Queue)
		if want == nil {
			require.Equal(t, m.ID, string(m.Body))
		}
	}

	// The bad ones go to the dead letters alone, and stay themselves there.
	s := settlement(claim, acked)
	for _, i := range []int{1, 2, 3, 4} {
		s.Verdicts[i] = message.Verdict{Verb: message.VerbDeadLetter, Reason: claim.Messages[i].Err.Error()}
	}
	stale, err := q.Shard(0).Settle(t.Context(), s)
	require.NoError(t, err)
	require.False(t, stale)
	reasons := map[string]string{}
	require.NoError(t, inspect.NewAdmin(q).DeadLetters(t.Context(), func(letter message.DeadLetter) bool {
		reasons[letter.ID] = letter.Reason
		require.Equal(t, letter.ID == "5-attempts", letter.Err == nil, letter.ID)
		require.False(t, letter.DiedAt.IsZero())
		return true
	}))
	require.Len(t, reasons, 4)
	require.Contains(t, reasons["2-missing"], "missing")

	// Without a body it cannot come back, with one it can.
	members := []string{"2-missing", "3-garbage", "4-version", "5-attempts"}
	codes, err := inspect.NewAdmin(q).Redrive(t.Context(), members)
	require.NoError(t, err)
	require.Equal(t, []store.Code{store.NoBody, store.NoBody, store.Done, store.Done}, codes)
	codes, err = inspect.NewAdmin(q).Purge(t.Context(), members)
	require.NoError(t, err)
	require.Equal(t, []store.Code{store.Done, store.Done, store.NotFound, store.NotFound}, codes)
	answer := q.Producer().Cancel(t.Context(), "4-version", "", store.Durability{})
	answered(t, store.Done, answer)
	b.finish(acked)
	s2 := sound(t, rdb, q)
	require.Empty(t, s2.Due)
}

// TestPoisonCancelled is a waiting message without a body.
func TestPoisonCancelled(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	create(t, q, "x", past())
	require.NoError(t, rdb.HDel(t.Context(), storetest.Key(q.Name(), 0, "msg"), "x").Err())
	answered(t, store.NotFound, q.Producer().Reschedule(t.Context(), "x", "", later(), store.Durability{}))
	answered(t, store.Done, q.Producer().Cancel(t.Context(), "x", "", store.Durability{}))
	sound(t, rdb, q)
	create(t, q, "x", later())
}

// TestPoisonScheduledAgain is one whose id is scheduled anew.
func TestPoisonScheduledAgain(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	create(t, q, "x", past())
	require.NoError(t, rdb.HDel(t.Context(), storetest.Key(q.Name(), 0, "msg"), "x").Err())
	schedule(t, q, "x", later())
	found, ok, err := inspect.Get(t.Context(), q, "x", "")
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, found.Err, "whole again")
}
