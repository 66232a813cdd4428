package inspect_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/pause"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestPause is heard by heartbeats, keeps its beginning, and ends once.
func TestPause(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 2)
	heard := func() map[string]time.Time {
		_, paused, err := q.Members().Heartbeat(t.Context(), "a/1", time.Minute)
		require.NoError(t, err)
		told, err := inspect.NewAdmin(q).Paused(t.Context())
		require.NoError(t, err)
		require.Len(t, told, len(paused))
		for topic, since := range paused {
			require.Equal(t, pause.Pause{Since: since, By: "ann"}, told[topic])
		}
		return paused
	}
	require.Empty(t, heard())
	queue, err := inspect.NewAdmin(q).Pause(t.Context(), "", "ann")
	require.NoError(t, err)
	topic, err := inspect.NewAdmin(q).Pause(t.Context(), "orders.eu", "ann")
	require.NoError(t, err)
	again, err := inspect.NewAdmin(q).Pause(t.Context(), "", "bob")
	require.NoError(t, err)
	require.Equal(t, queue, again)
	require.WithinDuration(t, time.Now(), queue, time.Minute)
	require.Equal(t, map[string]time.Time{"": queue, "orders.eu": topic}, heard())

	was, err := inspect.NewAdmin(q).Resume(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, queue, was)
	was, err = inspect.NewAdmin(q).Resume(t.Context(), "")
	require.NoError(t, err)
	require.Zero(t, was, "it was not paused")
	require.Equal(t, map[string]time.Time{"orders.eu": topic}, heard())

	_, err = inspect.NewAdmin(q).Pause(t.Context(), "no\x00topic", "ann")
	var invalid *message.InvalidError
	require.ErrorAs(t, err, &invalid)
}

// TestPausesAreBounded, and a pause that is there is none too many.
func TestPausesAreBounded(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	for i := range 256 {
		_, err := inspect.NewAdmin(q).Pause(t.Context(), fmt.Sprint("t", i), "ann")
		require.NoError(t, err)
	}
	_, err := inspect.NewAdmin(q).Pause(t.Context(), "one more", "ann")
	require.ErrorIs(t, err, inspect.ErrManyPaused)
	_, err = inspect.NewAdmin(q).Pause(t.Context(), "t7", "ann")
	require.NoError(t, err)
}

// TestWhoPaused stands beside a pause, and is never that of another one: earlier versions know
// the pause only, and leave the name when they resume.
func TestWhoPaused(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	_, err := inspect.NewAdmin(q).Pause(t.Context(), "mine", "ann")
	require.NoError(t, err)
	key := "delay:{delay:" + q.Name() + ":instances}:paused"
	first, err := rdb.HGet(t.Context(), key, pause.Changes).Int64()
	require.NoError(t, err)
	_, err = inspect.NewAdmin(q).Pause(t.Context(), "theirs", "ann")
	require.NoError(t, err)
	require.NoError(t, rdb.HDel(t.Context(), key, "theirs").Err(), "an earlier version resumes")
	require.NoError(t, rdb.HSet(t.Context(), key, "theirs", "1700000000000", "older", "1700000000000").Err(), "and pauses")
	told, err := inspect.NewAdmin(q).Paused(t.Context())
	require.NoError(t, err)
	require.Equal(t, pause.Pause{Since: time.UnixMilli(1_700_000_000_000)}, told["theirs"])
	require.Equal(t, told["theirs"], told["older"])
	require.Equal(t, "ann", told["mine"].By)
	require.Len(t, told, 3)
	for _, topic := range []string{"mine", "theirs", "older"} {
		_, err = inspect.NewAdmin(q).Resume(t.Context(), topic)
		require.NoError(t, err)
	}
	left, err := rdb.HGetAll(t.Context(), key).Result()
	require.NoError(t, err)
	require.Equal(t, map[string]string{pause.Changes: fmt.Sprint(first + 4)}, left)
}

// TestLatePause: a run that comes late, when another call has been answered, changes nothing.
func TestLatePause(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	lost := &withoutAnswer{}
	rdb.AddHook(lost)
	q := storetest.New(t, struct{ redis.UniversalClient }{rdb}, 1) // Its calls go through the hook.
	admin := inspect.NewAdmin(q)
	late := func(call func(context.Context) error) func() {
		ctx, cancel := context.WithCancel(t.Context())
		lost.gone = cancel
		require.ErrorIs(t, call(ctx), context.Canceled)
		lost.gone = nil
		run := lost.kept
		return func() { require.NoError(t, rdb.Do(t.Context(), run...).Err()) }
	}
	pauses := func(ctx context.Context) error { _, err := admin.Pause(ctx, "", "ann"); return err }
	resumes := func(ctx context.Context) error { _, err := admin.Resume(ctx, ""); return err }
	paused := func() bool {
		told, err := admin.Paused(t.Context())
		require.NoError(t, err)
		return len(told) > 0
	}
	pauseLate := late(pauses)
	require.NoError(t, resumes(t.Context()))
	pauseLate()
	require.False(t, paused())

	require.NoError(t, pauses(t.Context()))
	resumeLate := late(resumes)
	require.NoError(t, pauses(t.Context()))
	resumeLate()
	require.True(t, paused())

	late(resumes)()
	require.False(t, paused(), "no call came between")

	wipe := func() { require.NoError(t, rdb.Del(t.Context(), q.Keys().Paused()).Err()) }
	wipe()
	pauseLate = late(pauses) // The first call of all.
	wipe()
	pauseLate()
	require.False(t, paused(), "no call has seen the next count")
}

// withoutAnswer keeps a run that knows how many calls there were, in place of sending it, and ends the call.
type withoutAnswer struct {
	gone func()
	kept []any
}

func (*withoutAnswer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*withoutAnswer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *withoutAnswer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if h.gone == nil || len(args) < 12 || args[10] != pause.Changes || args[11] == "" {
			return next(ctx, cmd)
		}
		h.kept = args
		h.gone()
		return ctx.Err()
	}
}
