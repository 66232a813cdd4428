package consumer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/compensation/consumer"
	"github.com/delaybridge/delaybridge/internal/engine/compensation"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// fakeStore answers as it is told.
type fakeStore struct {
	answers map[string]store.Answer
	rows    []store.Row
	layout  error
}

func (f *fakeStore) Name() string   { return "orders" }
func (f *fakeStore) Now() time.Time { return time.UnixMilli(1_900_000_000_000) }

func (f *fakeStore) Layout(context.Context) (*store.Layout, error) {
	return &store.Layout{Sink: message.Kafka, MaxMessage: 100}, f.layout
}

func (f *fakeStore) Put(_ context.Context, rows []store.Row) []store.Answer {
	f.rows = append(f.rows, rows...)
	answers := make([]store.Answer, len(rows))
	for i, row := range rows {
		answers[i] = f.answers[row.Message.ID]
	}
	return answers
}

// fakeDead is a broker that takes letters, or does not.
type fakeDead struct {
	outcome sinks.Outcome
	letters []message.Message
}

func (f *fakeDead) Publish(_ context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	f.letters = append(f.letters, batch...)
	outcomes.Rest(f.outcome)
}

func newFakes(t *testing.T) (*fakeStore, *fakeDead, *counts, *consumer.Writer) {
	f, dead, observed := &fakeStore{answers: map[string]store.Answer{}}, &fakeDead{outcome: sinks.Acked()}, newCounts()
	return f, dead, observed, consumer.NewWriter(consumer.WriterConfig{
		Store: f, Dead: dead, Topic: "topic", Observer: observed, Logger: logger(t),
	})
}

func delivery(t *testing.T, id string, change func(*compensation.Message)) *source.Delivery {
	t.Helper()
	m := &compensation.Message{
		Kind: compensation.KindMessage, Queue: "orders", Token: "~~34567890123456", ID: id, Topic: "order.timeout",
		DueAt: time.UnixMilli(1_900_000_000_123), ValidUntil: time.UnixMilli(1_900_000_000_000),
	}
	if change != nil {
		change(m)
	}
	body, err := compensation.Encode(m)
	require.NoError(t, err)
	return &source.Delivery{Body: body}
}

// TestWriterAnswers: each answer of the store has its result, in one batch.
func TestWriterAnswers(t *testing.T) {
	t.Parallel()
	f, dead, observed, writer := newFakes(t)
	f.answers = map[string]store.Answer{
		"created": {Code: store.Created}, "mine": {Code: store.Mine}, "published": {Code: store.EndedPublished},
		"cancelled": {Code: store.EndedCancelled}, "moved": {Code: store.EndedMoved},
		"waiting": {Code: store.Waiting}, "flying": {Code: store.InFlight}, "dead": {Code: store.Dead},
		"away": {Err: store.ErrUnavailable}, "full": {Err: store.ErrFull}, "lost": {Err: store.ErrUnknown},
	}
	ids := []string{"created", "mine", "published", "cancelled", "moved", "waiting", "flying", "dead", "away", "full", "lost"}
	var batch []*source.Delivery
	for _, id := range ids {
		batch = append(batch, delivery(t, id, nil))
	}
	batch[0].Redelivered = true
	for range 2 {
		for i, err := range writer.Handle(t.Context(), batch) {
			require.Equal(t, f.answers[ids[i]].Err != nil, err != nil, ids[i])
		}
	}
	require.Equal(t, 2, observed.get(consumer.Stored))
	require.Equal(t, 8, observed.get(consumer.Already))
	require.Equal(t, 6, observed.get(consumer.Duplicate))
	require.Equal(t, 3, observed.get(consumer.Retried), "once a delivery")
	require.Empty(t, dead.letters)
	for _, row := range f.rows {
		require.Equal(t, row.Message.ID == "created", row.Mark == store.MarkAlways, row.Message.ID)
		require.Equal(t, int64(1_900_000_000_123), row.DueAt.UnixMilli())
		require.Equal(t, int64(1_900_000_000_000), row.Until.UnixMilli())
	}
}

// TestWriterLeavesRows: rows whose databases hang hold nothing up, neither the
// batch they are in nor what is behind it.
func TestWriterLeavesRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, dead, observed := &fakeStore{answers: map[string]store.Answer{"message": {Code: store.Created}}}, &fakeDead{}, newCounts()
		writer := consumer.NewWriter(consumer.WriterConfig{
			Store: f, Rows: new(relay), Dead: dead, Topic: "topic", Observer: observed, Logger: logger(t),
		})
		var batch []*source.Delivery
		for range 40 {
			batch = append(batch, delivery(t, "hangs", func(m *compensation.Message) {
				*m = compensation.Message{Kind: compensation.KindRow, Queue: m.Queue, Token: "~123456789abcdef", ID: m.ID}
			}))
		}
		batch = append(batch, delivery(t, "message", nil))
		began := time.Now()
		for _, err := range writer.Handle(t.Context(), batch) {
			require.NoError(t, err)
		}
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, 40, observed.get(consumer.Left))
		require.Equal(t, 1, observed.get(consumer.Stored))
	})
}

// TestWriterBuries: with the reason, as it came; what the broker does not take
// stays, but for what it never will.
func TestWriterBuries(t *testing.T) {
	t.Parallel()
	f, dead, observed, writer := newFakes(t)
	bad := &source.Delivery{Body: []byte("no JSON")}
	old := delivery(t, "old", func(m *compensation.Message) { m.ValidUntil = time.UnixMilli(1_899_999_999_999) })
	large := delivery(t, "large", func(m *compensation.Message) { m.Body = make([]byte, 100) })
	topic := delivery(t, "topic", func(m *compensation.Message) { m.Topic = "not for kafka" })
	long := delivery(t, "long", func(m *compensation.Message) { m.ValidUntil = f.Now().Add(2*compensation.Validity + time.Second) })
	batch := []*source.Delivery{bad, old, delivery(t, "good", nil), large, topic, long}
	f.answers["good"] = store.Answer{Code: store.Created}

	dead.outcome = sinks.Failed(sinks.Unavailable, sinks.ReasonConnection, errors.New("away"))
	errs := writer.Handle(t.Context(), batch)
	require.NoError(t, errs[2])
	for _, i := range []int{0, 1, 3, 4, 5} {
		require.Error(t, errs[i])
	}
	require.Zero(t, observed.get(consumer.Expired), "not yet")

	dead.outcome, dead.letters = sinks.Acked(), nil
	for _, err := range writer.Handle(t.Context(), []*source.Delivery{bad, old, large, topic, long}) {
		require.NoError(t, err)
	}
	require.Equal(t, 1, observed.get(consumer.Undecodable))
	require.Equal(t, 1, observed.get(consumer.Expired))
	require.Equal(t, 3, observed.get(consumer.Invalid))
	require.Len(t, dead.letters, 5)
	for _, letter := range dead.letters {
		require.Equal(t, "topic.dead", letter.Topic)
		require.NotEmpty(t, letter.Headers[consumer.HeaderReason])
		for _, sink := range []message.SinkType{message.Kafka, message.NATS, message.RabbitMQ} {
			require.NoError(t, letter.Validate(sink, message.DefaultMaxSize))
		}
	}
	require.Equal(t, bad.Body, dead.letters[0].Body)

	dead.outcome = sinks.Failed(sinks.Permanent, sinks.ReasonTooLarge, errors.New("never"))
	require.NoError(t, writer.Handle(t.Context(), []*source.Delivery{{Body: []byte("no JSON")}})[0],
		"it would stop all that come after it")
}

// TestWriterWithoutLayout: nothing is decided, and nothing is put.
func TestWriterWithoutLayout(t *testing.T) {
	t.Parallel()
	f, dead, _, writer := newFakes(t)
	f.layout = store.ErrUnavailable
	old := delivery(t, "old", func(m *compensation.Message) { m.ValidUntil = time.UnixMilli(1) })
	for _, err := range writer.Handle(t.Context(), []*source.Delivery{old, delivery(t, "a", nil)}) {
		require.ErrorIs(t, err, store.ErrUnavailable)
	}
	require.Empty(t, f.rows)
	require.Empty(t, dead.letters)
}
