package relay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// fakeRedis is what the relay sees of Redis: messages by identity, and how each
// token ended.
type fakeRedis struct {
	mu       sync.Mutex
	live     map[table.Identity]*fakeMessage
	ended    map[string]store.Code // by token
	answers  map[string]store.Answer
	created  map[table.Identity]int
	puts     int
	asked    int // rows of all puts
	err      error
	ahead    time.Duration
	life     string
	fail     func(table.Identity) error // for single messages
	hang     chan struct{}              // closed: calls go on
	entered  chan struct{}              // a call has begun to hang
	afterPut func()
}

type fakeMessage struct {
	token    string
	due      time.Time
	marked   bool
	inFlight bool
	dead     bool
	message  message.Message
}

func newFakeRedis() *fakeRedis {
	return &fakeRedis{
		live: map[table.Identity]*fakeMessage{}, ended: map[string]store.Code{}, answers: map[string]store.Answer{},
		created: map[table.Identity]int{}, life: "life", entered: make(chan struct{}, 1000),
	}
}

func (f *fakeRedis) with(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeRedis) clock(ctx context.Context) (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Add(f.ahead), f.err
}

// wait hangs where the test wants it to.
func (f *fakeRedis) wait(ctx context.Context) error {
	f.mu.Lock()
	hang, err := f.hang, f.err
	f.mu.Unlock()
	if hang == nil {
		return err
	}
	f.entered <- struct{}{}
	select {
	case <-hang:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnknown, ctx.Err())
	}
}

func (f *fakeRedis) get(it table.Identity) *fakeMessage {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.live[it]; m != nil {
		c := *m
		return &c
	}
	return nil
}

type fakeQueue struct {
	outbox.Store // Nothing else is asked of it.
	*fakeRedis
	name string
}

func (q *fakeQueue) Pin(context.Context) (outbox.Store, error) { return q, nil }

func (q *fakeQueue) Life() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.life
}

func (q *fakeQueue) Born(context.Context) ([]time.Time, error) { return nil, nil }

func (q *fakeQueue) Put(ctx context.Context, rows []store.Row) []store.Answer {
	answers := make([]store.Answer, len(rows))
	err := q.wait(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.puts++
	q.asked += len(rows)
	for i, r := range rows {
		it := table.Identity{Queue: q.name, Key: r.Message.Key, ID: r.Message.ID}
		one := err
		if one == nil && q.fail != nil {
			one = q.fail(it)
		}
		if one != nil {
			answers[i].Err = one
			continue
		}
		answers[i] = q.putOne(it, r)
	}
	if q.afterPut != nil {
		q.afterPut()
	}
	return answers
}

func (q *fakeQueue) putOne(it table.Identity, r store.Row) store.Answer {
	if code, ok := q.ended[r.Token]; ok {
		return store.Answer{Code: code}
	}
	switch m := q.live[it]; {
	case m == nil:
		q.live[it] = &fakeMessage{token: r.Token, due: r.DueAt, marked: r.Mark == store.MarkAlways, message: *r.Message}
		q.created[it]++
		return store.Answer{Code: store.Created}
	case m.token == r.Token:
		return store.Answer{Code: store.Mine}
	case m.dead:
		return store.Answer{Code: store.Dead, Reason: "broken"}
	case m.inFlight:
		return store.Answer{Code: store.InFlight}
	default:
		return store.Answer{Code: store.Waiting, DueAt: m.due}
	}
}

func (q *fakeQueue) CancelRow(ctx context.Context, o store.Operation) store.Answer {
	return q.operate(ctx, table.Identity{Queue: q.name, Key: o.Key, ID: o.ID}, o.Token, o.Target, time.Time{})
}

func (q *fakeQueue) RescheduleRow(ctx context.Context, o store.Operation, due time.Time) store.Answer {
	return q.operate(ctx, table.Identity{Queue: q.name, Key: o.Key, ID: o.ID}, o.Token, o.Target, due)
}

func (q *fakeQueue) operate(ctx context.Context, it table.Identity, token, target string, due time.Time) store.Answer {
	err := q.wait(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil && q.fail != nil {
		err = q.fail(it)
	}
	if err != nil {
		return store.Answer{Err: err}
	}
	if answer, ok := q.answers[token]; ok {
		return answer
	}
	answer := q.operateOnce(it, token, target, due)
	if answer.Code == store.Done || answer.Code == store.DoneMaybePublished {
		q.answers[token] = answer
	}
	return answer
}

func (q *fakeQueue) operateOnce(it table.Identity, token, target string, due time.Time) store.Answer {
	m := q.live[it]
	if m == nil {
		if code, ok := q.ended[target]; ok {
			return store.Answer{Code: code}
		}
		if target != "" {
			q.ended[target] = store.EndedCancelled
		}
		return store.Answer{Code: store.NotFound}
	}
	if m.inFlight {
		return store.Answer{Code: store.InFlight}
	}
	q.ended[m.token] = store.EndedCancelled
	if due.IsZero() {
		delete(q.live, it)
	} else {
		m.token, m.due = token, due
	}
	if m.marked {
		return store.Answer{Code: store.DoneMaybePublished}
	}
	return store.Answer{Code: store.Done}
}
