// Package consumer takes compensation messages from a broker and redoes the
// write of each: a write to Redis, or a look at the row of an outbox.
//
// A [source.Source] delivers them to the [Writer]. While Redis is unavailable they wait
// at the broker, except one batch here.
//
// A message that can never be redone goes unchanged to the topic <topic>.dead
// of the same broker, with the reason in a header. That needs no Redis, works
// for undecodable messages, too, and drops nothing.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/compensation"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// Store is what the writer needs of a queue; [store.Rows] is one.
type Store interface {
	Name() string
	Now() time.Time
	Layout(ctx context.Context) (*store.Layout, error)
	Put(ctx context.Context, rows []store.Row) []store.Answer
}

// Rows are the relays of the queue's outboxes. TakeIdentity brings the pending
// rows of one identity to Redis now, under their lock. If there are none, they
// have been settled already and found is false. An error says that it cannot be
// done now, and that a relay will.
type Rows interface {
	TakeIdentity(ctx context.Context, queue, key, id string) (found bool, err error)
}

// Result is the result for a compensation message, a metric's label.
type Result string

// The results. Retried comes before one of the others, once a delivery; a row is
// not retried.
const (
	Stored      Result = "stored"        // it is in Redis now, or its row was
	Already     Result = "already_there" // Redis had it, or it has ended, or the row has gone
	Left        Result = "left"          // the row's database, its lock or Redis was not available: the relay finds the row
	Duplicate   Result = "duplicate"     // another message has its identity
	Expired     Result = "expired"       // its validity was over: in the dead topic
	Undecodable Result = "undecodable"   // in the dead topic
	Invalid     Result = "invalid"       // against the queue's limits: in the dead topic
	Retried     Result = "retried"       // Redis or the broker was not ready
)

// Observer counts the results of compensation messages.
type Observer interface {
	Compensated(queue string, result Result)
}

const (
	// callTimeout bounds one try, so that the end of an outage and a shutdown are noticed.
	callTimeout = 5 * time.Second
	// rowsTimeout bounds the attempt for all rows of a batch: their relay polls a
	// few times a second anyway, and the messages behind them must not wait.
	rowsTimeout = time.Second
	// validMost bounds how long Redis must remember a message. A producer's clock may
	// be ahead by a day.
	validMost = 2 * compensation.Validity
	// takeWidth is how many rows are taken at the same time.
	takeWidth = 4
)

var errSilent = errors.New("store gave no answer")

// Writer redoes the writes of one queue. Its Handle is the [source.Handler] of one
// source: one call at a time.
type Writer struct {
	config  WriterConfig
	waiting bool // for Redis, and it was said
}

// WriterConfig is what a [Writer] needs.
type WriterConfig struct {
	Store Store
	// Rows is nil if the queue has no outbox.
	Rows Rows
	// Dead publishes to the broker that the source reads from.
	Dead sinks.Publisher
	// Topic is the source's.
	Topic    string
	Observer Observer
	Logger   *slog.Logger
}

// NewWriter returns a writer; it does no I/O.
func NewWriter(config WriterConfig) *Writer { return &Writer{config: config} }

// delivery is on its way: it may be handed in more than once.
type delivery struct {
	*source.Delivery

	compensation *compensation.Message
	retried      bool
	dead         Result // where it goes to the dead topic: why
	reason       string
}

// Ready is an error until Redis has answered once, as [source.Options] wants it.
func (w *Writer) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := w.config.Store.Layout(ctx)
	return err
}

// Handle is a [source.Handler].
func (w *Writer) Handle(ctx context.Context, deliveries []*source.Delivery) []error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	errs, batch := make([]error, len(deliveries)), make([]*delivery, len(deliveries))
	var puts, rows, dead []int
	for i := range deliveries {
		d, isKnown := deliveries[i].Kept.(*delivery)
		if !isKnown {
			d = w.decode(deliveries[i])
			deliveries[i].Kept = d
		}
		batch[i] = d
		switch {
		case d.dead != "":
			dead = append(dead, i)
		case d.compensation.Kind == compensation.KindRow:
			rows = append(rows, i)
		default:
			puts = append(puts, i)
		}
	}
	refused := w.put(call, batch, puts, errs)
	w.bury(call, batch, append(dead, refused...), errs)
	w.takeRows(ctx, batch, rows)
	w.report(call, batch, errs)
	return errs
}

// decode sorts out what can never be done.
func (w *Writer) decode(from *source.Delivery) *delivery {
	d := &delivery{Delivery: from}
	m, err := compensation.Decode(d.Body)
	if err == nil && m.Queue != w.config.Store.Name() {
		err = fmt.Errorf("%w: it is of queue %s", compensation.ErrUndecodable, m.Queue)
	}
	if err == nil && m.Kind == compensation.KindRow && w.config.Rows == nil {
		err = fmt.Errorf("%w: the queue has no outbox", compensation.ErrUndecodable)
	}
	if err != nil {
		d.dead, d.reason = Undecodable, err.Error()
	} else {
		d.compensation = m
	}
	return d
}

// takeRows takes a few rows at a time, since each is a transaction of its own, and
// each once: a compensation of a row only makes its relay faster.
func (w *Writer) takeRows(ctx context.Context, batch []*delivery, rows []int) {
	ctx, cancel := context.WithTimeout(ctx, rowsTimeout)
	defer cancel()
	var takers errgroup.Group
	takers.SetLimit(takeWidth)
	for _, i := range rows {
		takers.Go(func() error {
			w.count(w.takeRow(ctx, batch[i].compensation))
			return nil
		})
	}
	_ = takers.Wait() // None returns an error.
}

func (w *Writer) takeRow(ctx context.Context, m *compensation.Message) Result {
	if ctx.Err() != nil {
		return Left
	}
	found, err := w.config.Rows.TakeIdentity(ctx, m.Queue, m.Key, m.ID)
	switch {
	case err != nil:
		return Left
	case found:
		return Stored
	default:
		return Already
	}
}

// put brings messages to Redis, and returns those that it must not.
func (w *Writer) put(ctx context.Context, batch []*delivery, puts []int, errs []error) (refused []int) {
	if len(puts) == 0 {
		return nil
	}
	layout, err := w.config.Store.Layout(ctx)
	if err != nil {
		for _, i := range puts {
			errs[i] = fmt.Errorf("load layout: %w", err)
		}
		return nil
	}
	var rows []store.Row
	var index []int
	now := w.config.Store.Now() // By Redis' clock, which the layout has told.
	for _, i := range puts {
		d := batch[i]
		if w.refuse(d, layout, now) {
			refused = append(refused, i)
			continue
		}
		m := d.compensation
		rows, index = append(rows, store.Row{
			Token: m.Token, Message: m.Content(), DueAt: m.DueAt, Until: m.ValidUntil,
			// A Redis that has lost something may have forgotten that it had it.
			Mark: store.MarkIf(d.Redelivered),
		}), append(index, i)
	}
	if len(rows) == 0 {
		return refused
	}
	answers := w.config.Store.Put(ctx, rows)
	for n, i := range index {
		if n >= len(answers) {
			errs[i] = errSilent
			continue
		}
		errs[i] = w.settleByAnswer(ctx, batch[i], answers[n])
	}
	return refused
}

// refuse applies the validity and the limits of the queue.
func (w *Writer) refuse(d *delivery, layout *store.Layout, now time.Time) bool {
	m := d.compensation
	err := m.Content().Validate(layout.Sink, layout.MaxMessage)
	if err == nil {
		err = layout.Rules.Topics.Check(m.Content().Topic)
	}
	switch {
	case now.After(m.ValidUntil):
		d.dead, d.reason = Expired, "expired at "+m.ValidUntil.UTC().Format(message.TimeFormat)
	case m.ValidUntil.After(now.Add(validMost)):
		d.dead, d.reason = Invalid, "valid until "+m.ValidUntil.UTC().Format(message.TimeFormat)+": too long"
	case err != nil:
		d.dead, d.reason = Invalid, err.Error()
	case m.DueAt.After(now.AddDate(message.MaxDelayYears, 0, 1)):
		d.dead, d.reason = Invalid, fmt.Sprintf("due in more than %d years", message.MaxDelayYears)
	}
	return d.dead != ""
}

// settleByAnswer settles a delivery by what Redis says of its message.
func (w *Writer) settleByAnswer(ctx context.Context, d *delivery, answer store.Answer) error {
	m := d.compensation
	switch {
	case answer.Err != nil:
		return answer.Err
	case answer.Code == store.Created:
		w.count(Stored)
	case answer.Code == store.Mine || answer.Code == store.EndedPublished ||
		answer.Code == store.EndedCancelled || answer.Code == store.EndedMaybe || answer.Code == store.EndedMoved:
		w.count(Already)
	default:
		w.count(Duplicate)
		w.config.Logger.WarnContext(ctx, "compensation dropped: another message has its identity",
			"event", "compensation_duplicate", "id", m.ID, "key", m.Key)
	}
	return nil
}

// report counts and says what must wait.
func (w *Writer) report(ctx context.Context, batch []*delivery, errs []error) {
	var cause error
	for i, err := range errs {
		if err == nil {
			continue
		}
		if d := batch[i]; !d.retried {
			d.retried = true
			w.count(Retried)
		}
		if cause == nil {
			cause = err
		}
	}
	switch {
	case cause != nil && !w.waiting && !errors.Is(ctx.Err(), context.Canceled):
		w.waiting = true
		w.config.Logger.WarnContext(ctx, "compensations wait", "event", "compensation_waits", "err", cause)
	case cause == nil && w.waiting:
		w.waiting = false
		w.config.Logger.InfoContext(ctx, "compensations are redone again", "event", "compensation_resumed")
	}
}

func (w *Writer) count(result Result) {
	w.config.Observer.Compensated(w.config.Store.Name(), result)
}
