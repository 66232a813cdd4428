package delay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// TestRecurring: what was set is there, field by field, until it is deleted.
func TestRecurring(t *testing.T) {
	t.Parallel()
	client := newWorld(t, message.NATS).client(t)
	r := delay.Recurring{
		Name: "daily", Cron: "0 20 * * *", Zone: "Europe/Berlin", Missed: delay.CatchUpMissed, CatchUp: 3, Jitter: time.Minute,
		Until: time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC),
		Message: delay.Message{
			Key: "k", Topic: "t", Headers: map[string]string{"a": "b"}, Body: []byte("x"), Tags: []string{"vip"}, Late: delay.Late{After: time.Hour, Then: delay.LateDrop},
		},
	}
	set, err := client.SetRecurring(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, r, set.Recurring)
	require.WithinDuration(t, time.Now(), set.SetAt, time.Minute)
	require.Positive(t, time.Until(set.Next))
	found, err := client.Recurring(t.Context(), "daily")
	require.NoError(t, err)
	require.Equal(t, set, found)
	paused, err := client.PauseRecurring(t.Context(), "daily", "ann")
	require.NoError(t, err)
	require.Equal(t, "ann", paused.PausedBy)
	require.Zero(t, paused.Next)
	again, err := client.PauseRecurring(t.Context(), "daily", "bob")
	require.NoError(t, err)
	require.Equal(t, paused, again)
	set, err = client.SetRecurring(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "ann", set.PausedBy, "a start of the program does not end a pause")
	resumed, err := client.ResumeRecurring(t.Context(), "daily")
	require.NoError(t, err)
	require.Zero(t, resumed.PausedAt)
	all, err := client.Recurrings(t.Context())
	require.NoError(t, err)
	require.Equal(t, []delay.RecurringState{resumed}, all)
	require.NoError(t, client.DeleteRecurring(t.Context(), "daily"))
	_, err = client.Recurring(t.Context(), "daily")
	require.ErrorIs(t, err, delay.ErrNotFound)
	require.ErrorIs(t, client.DeleteRecurring(t.Context(), "daily"), delay.ErrNotFound)
}

// TestRefusedRecurring: an error names field, value and limit.
func TestRefusedRecurring(t *testing.T) {
	t.Parallel()
	w := newWorld(t, message.NATS)
	keys, err := delay.ParseKeyring([]byte("2026-11 Zm9yIHRoZSBleGFtcGxlIG9ubHksIDMyIGJ5dGVzLiE="))
	require.NoError(t, err)
	for field, c := range map[string]struct {
		client *delay.Client
		change func(r *delay.Recurring)
	}{
		"name":       {w.client(t), func(r *delay.Recurring) { r.Name = "a b" }},
		"cron":       {w.client(t), func(r *delay.Recurring) { r.Cron = "61 * * * *" }},
		"zone":       {w.client(t), func(r *delay.Recurring) { r.Zone = "Local" }},
		"id":         {w.client(t), func(r *delay.Recurring) { r.Message.ID = "a" }},
		"tag":        {w.client(t), func(r *delay.Recurring) { r.Message.Tags = []string{"a b"} }},
		"header":     {w.client(t), func(r *delay.Recurring) { r.Message.Headers = map[string]string{delay.HeaderRecurring: "a"} }},
		"topic":      {w.client(t), func(r *delay.Recurring) { r.Message.Topic = "a..b" }},
		"body":       {w.client(t), func(r *delay.Recurring) { r.Message.Body = make([]byte, 65<<10) }},
		"encryption": {w.client(t, delay.WithEncryption(keys)), func(*delay.Recurring) {}},
	} {
		r := delay.Recurring{Name: "n", Cron: "@daily", Message: delay.Message{Topic: "t"}}
		c.change(&r)
		_, err := c.client.SetRecurring(t.Context(), r)
		require.ErrorIs(t, err, delay.ErrInvalid, field)
		var invalid *delay.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, field, invalid.Field, err)
		require.NotEmpty(t, invalid.Limit)
	}
	all, err := w.client(t).Recurrings(t.Context())
	require.NoError(t, err)
	require.Empty(t, all)
}
