package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
)

// Time scales of the tests: what is due is due for long, what is not stays so.
const (
	Never = time.Hour
	Lease = time.Hour
)

// Connect is a client of that server.
func Connect(t testing.TB, url string, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	for _, set := range change {
		set(options)
	}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Now is Redis' clock in milliseconds.
func Now(ctx context.Context, rdb *redis.Client) (int64, error) {
	now, err := rdb.Time(ctx).Result()
	return now.UnixMilli(), err
}

// Sound dumps shard 0 and checks I6.
func Sound(t testing.TB, rdb redis.UniversalClient, q *store.Queue) *Shard {
	t.Helper()
	s, err := Dump(t.Context(), rdb, q.Name(), 0)
	require.NoError(t, err)
	require.NoError(t, s.Check())
	return s
}

// Remember has the queue keep a history.
func Remember(t testing.TB, q *store.Queue, h layout.History) *store.Queue {
	t.Helper()
	SetRules(t, q, layout.Rules{History: h})
	return q
}

// Note is a message of that id and body.
func Note(id, body string) *message.Message {
	return &message.Message{ID: id, Topic: "topic", Headers: map[string]string{"h": "v"}, Body: []byte(body)}
}

// Past is an instant long ago.
func Past() store.When { return store.When{Ms: 1_000_000} }

// At is that instant.
func At(ms int64) store.When { return store.When{Ms: ms} }

// Later is an instant that does not come.
func Later() store.When { return store.When{Relative: true, Ms: Never.Milliseconds()} }

// Schedule schedules a message of that id.
func Schedule(t testing.TB, q *store.Queue, id string, when store.When) store.Answer {
	t.Helper()
	answer := q.Producer().Schedule(t.Context(), []store.Request{{Message: Note(id, id), When: when}}, false, store.Durability{})[0]
	require.NoError(t, answer.Err)
	return answer
}

// Create schedules a message whose identity is free.
func Create(t testing.TB, q *store.Queue, id string, when store.When) {
	t.Helper()
	Answered(t, store.Created, Schedule(t, q, id, when))
}

// Cancel cancels the message of that id.
func Cancel(t testing.TB, q *store.Queue, id string) store.Code {
	t.Helper()
	answer := q.Producer().Cancel(t.Context(), id, "", store.Durability{})
	require.NoError(t, answer.Err)
	return answer.Code
}

// Reschedule moves the message of that id.
func Reschedule(t testing.TB, q *store.Queue, id string, when store.When) store.Code {
	t.Helper()
	answer := q.Producer().Reschedule(t.Context(), id, "", when, store.Durability{})
	require.NoError(t, answer.Err)
	return answer.Code
}

// Answered wants an answer with that code.
func Answered(t testing.TB, code store.Code, answer store.Answer) {
	t.Helper()
	require.NoError(t, answer.Err)
	require.Equal(t, code, answer.Code)
}

// Tag schedules a message with tags.
func Tag(t testing.TB, q *store.Queue, m *message.Message, when store.When, tags ...string) {
	t.Helper()
	var err error
	m.Headers, err = message.WithTags(m.Headers, tags)
	require.NoError(t, err)
	Answered(t, store.Created, q.Producer().Schedule(t.Context(), []store.Request{{Message: m, When: when}}, false, store.Durability{})[0])
}

// ScheduleMany schedules that many messages, whose ids begin with the prefix.
func ScheduleMany(t testing.TB, q *store.Queue, prefix string, n int, body []byte) {
	t.Helper()
	list := make([]store.Request, n)
	for i := range list {
		list[i] = store.Request{
			Message: &message.Message{ID: fmt.Sprintf("%s-%05d", prefix, i), Topic: "t", Body: body}, When: Past(),
		}
	}
	for _, answer := range q.Producer().Schedule(t.Context(), list, false, store.Durability{}) {
		Answered(t, store.Created, answer)
	}
}

// ListAll goes through all pages; between, unless nil, is called between them.
func ListAll(t testing.TB, q *store.Queue, r inspect.ListRequest, between func()) (all []inspect.ListItem) {
	t.Helper()
	for {
		page, err := inspect.NewAdmin(q).List(t.Context(), r)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Messages), r.Limit)
		all = append(all, page.Messages...)
		if r.After = page.Next; page.Next == "" {
			return all
		}
		if between != nil {
			between()
		}
	}
}

// States makes a queue with two messages in each state.
func States(t testing.TB, rdb *redis.Client) *store.Queue {
	t.Helper()
	q := New(t, rdb, 1)
	b := NewBridge(t, q)
	two := func(name string, when store.When) {
		Create(t, q, name+"-1", when)
		Create(t, q, name+"-2", when)
	}
	two("dead", Past())
	b.Settle(b.Claim(10), message.Verdict{Verb: message.VerbDeadLetter, Reason: "refused"})
	two("parked", Past())
	b.Settle(b.Claim(10), Parked)
	two("flies", Past())
	b.Claim(10)
	two("waits", Later())
	return q
}

// Bridge is an instance that claims and settles shard 0.
type Bridge struct {
	testing.TB
	Queue    *store.Queue
	Instance string
	Number   uint64 // of its last claim
}

// NewBridge is an instance of the name "bridge".
func NewBridge(t testing.TB, q *store.Queue) *Bridge {
	return &Bridge{TB: t, Queue: q, Instance: "bridge"}
}

// Request asks for the next claim.
func (b *Bridge) Request(most int) message.ClaimRequest {
	b.Number++
	return message.ClaimRequest{
		Token: message.ClaimToken{Instance: b.Instance, Number: b.Number}, Max: most, Timeout: Never, Lease: Lease,
	}
}

// Claim takes up to most due messages; it must be granted.
func (b *Bridge) Claim(most int) message.Claim {
	b.Helper()
	return b.claim(b.Request(most))
}

// ClaimSlot is Claim of a slot of parked messages; free are given back.
func (b *Bridge) ClaimSlot(slot, most int, free ...int) message.Claim {
	b.Helper()
	r := b.Request(most)
	r.Slot, r.Free = slot, free
	return b.claim(r)
}

func (b *Bridge) claim(r message.ClaimRequest) message.Claim {
	b.Helper()
	claim, err := b.Queue.Shard(0).Claim(b.Context(), r)
	require.NoError(b, err)
	require.Equal(b, message.ClaimGranted, claim.State)
	return claim
}

// Settle ends the claim with one verdict for all; it must not be stale.
func (b *Bridge) Settle(claim message.Claim, v message.Verdict) {
	b.Helper()
	stale, err := b.Queue.Shard(0).Settle(b.Context(), Settlement(claim, v))
	require.NoError(b, err)
	require.False(b, stale)
}

// Park claims all that is due and parks it in the slot.
func (b *Bridge) Park(slot int, routes ...message.ParkedRoute) {
	b.Helper()
	s := Settlement(b.Claim(100), message.Verdict{Verb: message.VerbPark, Slot: slot})
	s.Parks = routes
	stale, err := b.Queue.Shard(0).Settle(b.Context(), s)
	require.NoError(b, err)
	require.False(b, stale)
}

// Finish claims the one due message and settles it. What is due now by a delay may be due in
// the next millisecond only.
func (b *Bridge) Finish(v message.Verdict) {
	b.Helper()
	claim := b.Claim(10)
	for end := time.Now().Add(10 * time.Second); len(claim.Messages) == 0 && time.Now().Before(end); {
		claim = b.Claim(10)
	}
	require.Len(b, claim.Messages, 1)
	b.Settle(claim, v)
}

// Settlement is one verdict for all messages of a claim.
func Settlement(claim message.Claim, v message.Verdict) message.Settlement {
	s := message.Settlement{Claim: claim, Verdicts: make([]message.Verdict, len(claim.Messages))}
	for i := range s.Verdicts {
		s.Verdicts[i] = v
	}
	return s
}

// The verdicts of the tests.
var (
	Acked    = message.Verdict{Verb: message.VerbAck, Published: true}
	Released = message.Verdict{Verb: message.VerbRelease}
	Retried  = message.Verdict{Verb: message.VerbRetry, Delay: Never, Attempts: message.Attempts{Failures: 1, Begun: 1}}
	Unknown  = message.Verdict{Verb: message.VerbRelease, Published: true, Attempts: message.Attempts{Begun: 1, MaybeOut: 1, Unknowns: 1}}
	Parked   = message.Verdict{Verb: message.VerbPark, Slot: 7}
	Dropped  = message.Verdict{Verb: message.VerbDrop}
	Kept     = message.Verdict{Verb: message.VerbKeep}
	Buried   = message.Verdict{Verb: message.VerbDeadLetter, Reason: "refused: too large", Attempts: message.Attempts{Failures: 1, Begun: 1}}
)
