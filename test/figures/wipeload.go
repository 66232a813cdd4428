package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// events are when what was logged happened.
type events struct {
	mu    sync.Mutex
	times map[string][]time.Time
	sink  *countingSink
}

func (e *events) add(name string, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.times == nil {
		e.times = map[string][]time.Time{}
	}
	e.times[name] = append(e.times[name], at)
}

func (e *events) at(name string, n int) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.times[name]) < n {
		return time.Time{}
	}
	return e.times[name][n-1]
}

// await waits until it has happened n times.
func (e *events) await(ctx context.Context, name string, n int) error {
	limit := time.After(15 * time.Minute)
	for e.at(name, n).IsZero() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-limit:
			return fmt.Errorf("%s did not happen", name)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// countingSink acknowledges after a while, and counts.
type countingSink struct {
	mu        sync.Mutex
	published map[string][]time.Time
}

// Publish takes 20 ms.
func (s *countingSink) Publish(_ context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	<-time.After(20 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range batch {
		s.published[batch[i].ID] = append(s.published[batch[i].ID], time.Now())
	}
	outcomes.Rest(sinks.Acked())
}

// Route is one for all.
func (*countingSink) Route(*message.Message) sinks.Route { return "" }

// Ping is always answered.
func (*countingSink) Ping(context.Context) error { return nil }

// Close has nothing to close.
func (*countingSink) Close(context.Context) error { return nil }

func (s *countingSink) copies() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	copies := make(map[string]int, len(s.published))
	for id, times := range s.published {
		copies[id] = len(times)
	}
	return copies
}

// wipeLoad schedules messages that are due soon: 250 a second in two seconds, of which
// it cancels one in ten about then, and as many within the [lateSpan] after that.
type wipeLoad struct {
	w      *wipeWorld
	sink   *countingSink
	cancel context.CancelFunc
	done   chan struct{}
	once   sync.Once
	made   map[string]promise // by id; read when the load has stopped
}

// promise is when a message was committed, and when it is due.
type promise struct{ made, due time.Time }

// lateSpan is how long after the FLUSHALL messages are due whose lateness is told.
const lateSpan = 10 * time.Second

func startWipeLoad(ctx context.Context, w *wipeWorld) *wipeLoad {
	ctx, cancel := context.WithCancel(ctx)
	p := &wipeLoad{w: w, sink: w.events.sink, cancel: cancel, done: make(chan struct{}), made: map[string]promise{}}
	go func() {
		defer close(p.done)
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			if err := p.round(context.WithoutCancel(ctx), n); err != nil {
				fmt.Fprintln(os.Stderr, "producer:", err)
			}
		}
	}()
	return p
}

// round schedules 100 messages, and cancels 5 of those of ten rounds ago.
func (p *wipeLoad) round(ctx context.Context, n int) error {
	requests, now := make([]delay.Request, 100), time.Now()
	for i := range requests {
		requests[i] = delay.Request{
			Message: delay.Message{ID: fmt.Sprintf("f-%d-%d", n, i), Topic: "topic", Body: wipeBody}, When: delay.At(now.Add(lead(i))),
		}
	}
	tx, err := p.w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // Nothing, where it was committed.
	if _, err := p.w.box.ScheduleBatch(ctx, tx, wipeQueue, requests); err != nil {
		return err
	}
	for i := range 5 {
		if n < 10 {
			break
		}
		ref := delay.Ref{ID: fmt.Sprintf("f-%d-%d", n-10+i%3, i)}
		if err := p.w.box.Cancel(ctx, tx, wipeQueue, ref); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	made := time.Now()
	for i := range requests {
		p.made[requests[i].Message.ID] = promise{made: made, due: now.Add(lead(i))}
	}
	return nil
}

// lead is how long after its round a message is due.
func lead(i int) time.Duration { return 2*time.Second + lateSpan*time.Duration(max(0, i-50))/50 }

// stop ends the producer, and waits until everything is published.
func (p *wipeLoad) stop() {
	p.once.Do(func() {
		p.cancel()
		<-p.done
		last := maps.Clone(p.sink.copies())
		<-time.After(lateSpan)
		for begun := time.Now(); time.Since(begun) < time.Minute; {
			<-time.After(4 * time.Second)
			now := p.sink.copies()
			if maps.Equal(last, now) {
				return
			}
			last = now
		}
	})
}

// nearWipe reports whether the message was published shortly before or after
// Redis was wiped: so that nobody had noted it yet.
func (p *wipeLoad) nearWipe(id string) bool {
	p.sink.mu.Lock()
	defer p.sink.mu.Unlock()
	first := p.sink.published[id][0]
	return first.After(p.wiped().Add(-2*time.Second)) && first.Before(p.wiped().Add(2*time.Second))
}

func (p *wipeLoad) wiped() time.Time { return p.w.events.at("wiped", 1) }

// fate is what rows say about a message.
type fate struct{ head, cancel string }

// states reads what became of what is not to wait.
func (w *wipeWorld) states(ctx context.Context) (map[string]fate, error) {
	names := []string{"pending", "stored", "published", "cancelled", "too_late", "unknown", "refused", "superseded"}
	rows, err := w.db.QueryContext(ctx, "SELECT message_id, op, status FROM delay_outbox WHERE message_id LIKE 'f-%' ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	all := map[string]fate{}
	for rows.Next() {
		var id string
		var op, status int
		if err := rows.Scan(&id, &op, &status); err != nil {
			return nil, err
		}
		f := all[id]
		switch {
		case op == 0:
			f.head = names[status]
		case f.cancel == "" || f.cancel == "superseded" || names[status] == "cancelled":
			f.cancel = names[status]
		}
		all[id] = f
	}
	return all, rows.Err()
}

// late says how late the messages were first published that were due within the
// [lateSpan] after the FLUSHALL: those that Redis had lost, and those that were made
// since.
func (p *wipeLoad) late() string {
	var lost, since []time.Duration
	p.sink.mu.Lock()
	defer p.sink.mu.Unlock()
	for id, m := range p.made {
		copies := p.sink.published[id]
		if after := m.due.Sub(p.wiped()); after < 0 || after > lateSpan || len(copies) == 0 {
			continue
		}
		if took := copies[0].Sub(m.due); m.made.Before(p.wiped()) {
			lost = append(lost, took)
		} else {
			since = append(since, took)
		}
	}
	return spread(lost) + "; made since: " + spread(since)
}

// spread tells the middle and the end of a list.
func spread(list []time.Duration) string {
	if len(list) == 0 {
		return "none"
	}
	slices.Sort(list)
	at := func(percent int) time.Duration { return list[(len(list)-1)*percent/100].Round(time.Millisecond) }
	return fmt.Sprintf("%d, late by %s (p50), %s (p99), %s (max)", len(list), at(50), at(99), at(100))
}
