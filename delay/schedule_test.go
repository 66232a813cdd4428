package delay_test

import (
	"errors"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

var (
	order = delay.Message{
		ID: "order-42/timeout", Key: "order-42", Topic: "order.timeout",
		Headers: map[string]string{"traceparent": "00-1-2-01"}, Body: []byte("{}\x00\xff"),
	}
	orderRef = delay.Ref{ID: order.ID, Key: order.Key}
)

// TestDueAt counts from the moment of acceptance, and rounds up.
func TestDueAt(t *testing.T) {
	t.Parallel()
	p := newPlace(t, kafka)
	client := p.client(t, delay.WithConflict(delay.Replace))
	for after, want := range map[time.Duration]time.Duration{
		0:                       0,
		-time.Hour:              0,
		1:                       time.Millisecond,
		time.Millisecond:        time.Millisecond,
		1500 * time.Microsecond: 2 * time.Millisecond,
		30 * time.Minute:        30 * time.Minute,
		time.Hour + 1:           time.Hour + time.Millisecond,
		365*24*time.Hour + 1:    365*24*time.Hour + time.Millisecond,
		tenYears:                tenYears,
		tenYears - 1:            tenYears,
	} {
		res, err := client.Schedule(t.Context(), order, delay.After(after))
		require.NoError(t, err)
		info, err := client.Get(t.Context(), res.Ref)
		require.NoError(t, err)
		require.Equal(t, want, info.DueAt.Sub(info.ScheduledAt), "after %s", after)
		require.Equal(t, info.DueAt, res.DueAt)
	}
	at := time.Date(2031, 2, 3, 4, 5, 6, 7_000_001, time.FixedZone("", 3600))
	res, err := client.Schedule(t.Context(), order, delay.At(at))
	require.NoError(t, err)
	require.Equal(t, "2031-02-03T03:05:06.008Z", res.DueAt.UTC().Format(message.TimeFormat))
	require.NoError(t, client.Reschedule(t.Context(), res.Ref, delay.At(time.UnixMilli(1_790_000_000_000))))
	info, err := client.Get(t.Context(), res.Ref)
	require.NoError(t, err)
	require.EqualValues(t, 1_790_000_000_000, info.DueAt.UnixMilli())
}

// TestPast publishes at once what was due long ago.
func TestPast(t *testing.T) {
	t.Parallel()
	p := newPlace(t, kafka)
	client := p.client(t)
	due := time.Unix(1, 0)
	res, err := client.Schedule(t.Context(), order, delay.At(due))
	require.NoError(t, err)
	require.True(t, due.Equal(res.DueAt))
	p.finish(t, acked)
	_, err = client.Get(t.Context(), res.Ref)
	require.ErrorIs(t, err, delay.ErrNotFound)
}

// TestGet returns all of the message.
func TestGet(t *testing.T) {
	t.Parallel()
	p := newPlace(t, kafka)
	client := p.client(t)
	due := time.Unix(1, 0)
	res, err := client.Schedule(t.Context(), order, delay.At(due))
	require.NoError(t, err)
	require.Equal(t, orderRef, res.Ref)
	require.Equal(t, delay.Created, res.Status)
	info, err := client.Get(t.Context(), orderRef)
	require.NoError(t, err)
	require.Equal(t, order, info.Message)
	require.Equal(t, delay.Scheduled, info.State)
	require.Equal(t, 1, info.Attempt)
	require.WithinRange(t, info.ScheduledAt, time.Now().Add(-time.Minute), time.Now().Add(time.Minute))
	_, err = client.Get(t.Context(), delay.Ref{ID: order.ID})
	require.ErrorIs(t, err, delay.ErrInvalid, "the identity is key and ID")

	p.finish(t, unknown)
	info, err = client.Get(t.Context(), orderRef)
	require.NoError(t, err)
	require.Equal(t, 2, info.Attempt)
	p.finish(t, buried)
	info, err = client.Get(t.Context(), orderRef)
	require.NoError(t, err)
	require.Equal(t, delay.Dead, info.State)
	require.Equal(t, buried.Reason, info.Reason)
	require.Equal(t, order, info.Message)
	require.NoError(t, client.Reschedule(t.Context(), orderRef, delay.At(due)))
	p.finish(t, inFlight)
	info, err = client.Get(t.Context(), orderRef)
	require.NoError(t, err)
	require.Equal(t, delay.InFlight, info.State)
	require.True(t, due.Equal(info.DueAt))
}

// TestNewID makes a ULID if there is no ID.
func TestNewID(t *testing.T) {
	t.Parallel()
	client := newPlace(t, kafka).client(t)
	seen := map[string]bool{}
	for range 20 {
		res, err := client.Schedule(t.Context(), delay.Message{Topic: "t"}, delay.After(time.Hour))
		require.NoError(t, err)
		_, err = ulid.ParseStrict(res.Ref.ID)
		require.NoError(t, err)
		require.False(t, seen[res.Ref.ID])
		seen[res.Ref.ID] = true
		require.NoError(t, client.Cancel(t.Context(), res.Ref))
	}
}

// conflict is what the three policies answer in a state.
type conflict struct {
	enter                 *message.Verdict // nil: it waits
	reject, keep, replace error
	kept                  delay.Status
}

// TestConflict schedules an identity that is taken.
// TestConflict checks I10: an id that is there is said to be.
func TestConflict(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]conflict{
		"waits":     {reject: delay.ErrDuplicate, kept: delay.Existing},
		"in flight": {enter: &inFlight, reject: delay.ErrDuplicate, kept: delay.Existing, replace: delay.ErrTooLate},
		"dead":      {enter: &buried, reject: delay.ErrDuplicate, keep: delay.ErrDuplicate},
		"published": {enter: &acked, kept: delay.Created},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			taken := func() *place {
				p := newPlace(t, kafka)
				_, err := p.client(t).Schedule(t.Context(), order, delay.At(time.Unix(1, 0)))
				require.NoError(t, err)
				if c.enter != nil {
					p.finish(t, *c.enter)
				}
				return p
			}
			res, err := taken().client(t).Schedule(t.Context(), order, delay.After(time.Hour))
			require.ErrorIs(t, err, c.reject)
			require.Equal(t, err, res.Err)
			require.Equal(t, orderRef, res.Ref)
			require.Equal(t, err == nil, res.Status == delay.Created)
			if name == "dead" {
				require.ErrorContains(t, err, "in the dead letters")
				require.ErrorContains(t, err, buried.Reason)
			}
			res, err = taken().client(t, delay.WithConflict(delay.Keep)).Schedule(t.Context(), order, delay.After(time.Hour))
			require.ErrorIs(t, err, c.keep)
			require.Equal(t, c.kept, res.Status)
			if name == "waits" {
				require.True(t, res.DueAt.Equal(time.Unix(1, 0)), "the other's due time")
			}
			res, err = taken().client(t, delay.WithConflict(delay.Replace)).Schedule(t.Context(), order, delay.After(time.Hour))
			require.ErrorIs(t, err, c.replace)
			switch {
			case err != nil:
				require.Empty(t, res.Status)
			case name == "published":
				require.Equal(t, delay.Created, res.Status)
			default:
				require.Equal(t, delay.Replaced, res.Status)
			}
		})
	}
}

// TestChange cancels and reschedules in each state.
func TestChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		enter *message.Verdict
		want  error
	}{
		"waits":           {},
		"in flight":       {&inFlight, delay.ErrTooLate},
		"dead":            {&buried, nil},
		"published":       {&acked, delay.ErrNotFound},
		"maybe published": {&unknown, delay.ErrMaybePublished},
	} {
		for verb, do := range map[string]func(*delay.Client) error{
			"cancel":     func(c *delay.Client) error { return c.Cancel(t.Context(), orderRef) },
			"reschedule": func(c *delay.Client) error { return c.Reschedule(t.Context(), orderRef, delay.After(time.Hour)) },
			"publish":    func(c *delay.Client) error { return c.PublishNow(t.Context(), orderRef) },
		} {
			t.Run(name+"/"+verb, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t, kafka)
				client := p.client(t)
				_, err := client.Schedule(t.Context(), order, delay.At(time.Unix(1, 0)))
				require.NoError(t, err)
				if c.enter != nil {
					p.finish(t, *c.enter)
				}
				require.ErrorIs(t, do(client), c.want)
				if c.want == nil || errors.Is(c.want, delay.ErrMaybePublished) {
					info, err := client.Get(t.Context(), orderRef)
					if verb == "cancel" {
						require.ErrorIs(t, err, delay.ErrNotFound)
						return
					}
					require.NoError(t, err)
					require.Equal(t, delay.Scheduled, info.State)
					if verb == "publish" {
						require.WithinDuration(t, time.Now(), info.DueAt, time.Minute)
						return
					}
					require.True(t, info.DueAt.After(time.Now()))
				}
			})
		}
	}
}

// TestBatch has a result an item; bad ones do not fail their mates.
func TestBatch(t *testing.T) {
	t.Parallel()
	p := newPlace(t, kafka)
	client := p.client(t)
	_, err := client.Schedule(t.Context(), delay.Message{ID: "taken", Topic: "t"}, delay.At(time.Unix(5, 0)))
	require.NoError(t, err)
	after := delay.After(time.Hour)
	results, err := client.ScheduleBatch(t.Context(), []delay.Request{
		{Message: delay.Message{ID: "a", Topic: "t"}, When: after},
		{Message: delay.Message{ID: "b", Topic: "not a topic"}, When: after},
		{Message: delay.Message{Topic: "t"}, When: after},
		{Message: delay.Message{ID: "taken", Topic: "t"}, When: after},
		{Message: delay.Message{ID: "c", Topic: "t"}, When: delay.At(time.Time{})},
		{Message: delay.Message{ID: "a", Topic: "t"}, When: delay.After(2 * time.Hour)},
		{Message: delay.Message{ID: "a", Key: "k", Topic: "t"}, When: delay.After(0)},
	})
	require.NoError(t, err)
	require.Len(t, results, 7)
	for i, want := range []error{nil, delay.ErrInvalid, nil, delay.ErrDuplicate, delay.ErrInvalid, delay.ErrDuplicate, nil} {
		require.ErrorIs(t, results[i].Err, want, "item %d", i)
		require.Equal(t, want == nil, results[i].Status == delay.Created, "item %d", i)
		require.NotEmpty(t, results[i].Ref.ID, "item %d", i)
	}
	require.True(t, results[3].DueAt.Equal(time.Unix(5, 0)), "of the one that waits")
	require.Equal(t, results[0].DueAt, results[5].DueAt, "a duplicate within the batch")
	require.Equal(t, delay.Ref{ID: "a", Key: "k"}, results[6].Ref)
	require.EqualValues(t, 4, p.scheduled(t))

	results, err = client.ScheduleBatch(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, results)
}

// TestErrors tells apart what a producer must tell apart.
func TestErrors(t *testing.T) {
	t.Parallel()
	rdb := storetest.Connect(t, "redis://127.0.0.1:1")
	unreachable, err := delay.NewClient(rdb, "orders", delay.WithTimeout(100*time.Millisecond))
	require.NoError(t, err)
	nobodys, err := delay.NewClient(newFakePlace(t, kafka).rdb, "nobody-made-this")
	require.NoError(t, err)
	for want, client := range map[error]*delay.Client{delay.ErrUnavailable: unreachable, delay.ErrNoLayout: nobodys} {
		res, err := client.Schedule(t.Context(), order, delay.After(time.Hour))
		require.ErrorIs(t, err, want)
		require.Equal(t, err, res.Err)
		require.Equal(t, orderRef, res.Ref)
		results, err := client.ScheduleBatch(t.Context(), []delay.Request{{Message: order, When: delay.After(0)}, {Message: order, When: delay.After(0)}})
		require.ErrorIs(t, err, want)
		require.Len(t, results, 2)
		require.ErrorIs(t, results[1].Err, want)
		_, err = client.Get(t.Context(), orderRef)
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, client.Cancel(t.Context(), orderRef), want)
		require.ErrorIs(t, client.Reschedule(t.Context(), orderRef, delay.After(0)), want)
	}
}

// TestPrefix keeps queues of one name apart.
func TestPrefix(t *testing.T) {
	t.Parallel()
	p := newPlace(t, kafka)
	_, err := p.client(t, delay.WithPrefix("other")).Schedule(t.Context(), order, delay.After(time.Hour))
	require.ErrorIs(t, err, delay.ErrNoLayout)
}

// TestNotDurable is said, and the call is done all the same.
func TestNotDurable(t *testing.T) {
	t.Parallel()
	p := newPlace(t, kafka)
	client := p.client(t, delay.WithDurability(delay.Replicas(1)))
	res, err := client.Schedule(t.Context(), order, delay.After(time.Hour))
	require.ErrorIs(t, err, delay.ErrNotDurable)
	require.Equal(t, delay.Created, res.Status)
	require.ErrorIs(t, client.Reschedule(t.Context(), orderRef, delay.At(time.Unix(1, 0))), delay.ErrNotDurable)
	p.finish(t, unknown)
	err = client.Cancel(t.Context(), orderRef)
	require.ErrorIs(t, err, delay.ErrNotDurable)
	require.ErrorIs(t, err, delay.ErrMaybePublished)
	require.ErrorIs(t, client.Cancel(t.Context(), orderRef), delay.ErrNotFound)
	require.NotErrorIs(t, client.Cancel(t.Context(), orderRef), delay.ErrNotDurable)
}

// scheduled is how many messages were ever created.
func (p *place) scheduled(t testing.TB) int64 {
	t.Helper()
	stats, err := inspect.NewAdmin(p.queue).Stats(t.Context(), 0)
	require.NoError(t, err)
	return stats.Counters["scheduled"]
}
