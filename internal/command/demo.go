//go:build !production

package command

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/dev"
)

// demoTimeout is how long the last message may take.
const demoTimeout = 30 * time.Second

// demoDelays are those of the messages, in turn. The one that is cancelled is due
// long before the end, so that it would be seen.
var demoDelays = []time.Duration{
	500 * time.Millisecond, time.Second, 1250 * time.Millisecond, 1500 * time.Millisecond, 2 * time.Second, 2500 * time.Millisecond,
}

// Which of the messages are cancelled and rescheduled, and when that is due.
const (
	demoCancelled   = 2
	demoRescheduled = 3
	demoNewDelay    = 3 * time.Second
)

// demo is one show of the whole way: SDK, Redis, poller, sink, NATS.
type demo struct {
	environment *environment
	client      *delay.Client
	began       time.Time
	arrivals    chan dev.Arrival
	// refs are the messages, whose numbers differ from run to run: with --data an
	// earlier demo that was interrupted may have left some.
	refs []delay.Ref
	// missing are the ids that have yet to arrive.
	missing map[string]bool
	late    []time.Duration
}

// demo runs the show. It ends well only if each message arrived once, none
// before its due time, and the cancelled one not at all.
func (e *environment) demo() error {
	rdb, err := e.config.Redis.Open("delaybridge-demo")
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	client, err := delay.NewClient(rdb, devQueue, delay.WithPrefix(e.config.Prefix))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(e.ctx, demoTimeout)
	defer cancel()
	d := &demo{
		environment: e, client: client, missing: map[string]bool{},
		arrivals: make(chan dev.Arrival, 10*len(demoDelays)), began: time.Now(),
	}
	err = e.servers.Follow(ctx, devTopic, func(a dev.Arrival) {
		select {
		case d.arrivals <- a:
		case <-ctx.Done():
		}
	})
	if err == nil {
		err = d.produce(ctx)
	}
	if err == nil {
		err = d.consume(ctx)
	}
	if e.ctx.Err() != nil {
		return nil // Interrupted.
	}
	return err
}

// produce schedules the messages, cancels one and reschedules another.
func (d *demo) produce(ctx context.Context) error {
	_, _ = fmt.Fprintf(d.environment.stdout, "\nA producer schedules %d messages of queue %s, for topic %s:\n\n", len(demoDelays), devQueue, devTopic)
	d.began = time.Now()
	first := 1000 + rand.IntN(8000)
	for i, after := range demoDelays {
		key := fmt.Sprintf("order-%d", first+i)
		m := delay.Message{ID: key + "/timeout", Key: key, Topic: devTopic, Body: fmt.Appendf(nil, `{"order": %d}`, first+i)}
		result, err := d.client.Schedule(ctx, m, delay.After(after))
		if err != nil {
			return fmt.Errorf("schedule %s: %w", m.ID, err)
		}
		d.refs = append(d.refs, result.Ref)
		d.missing[m.ID] = true
		d.say("scheduled", m.ID, "due in "+after.String())
	}
	cancelled, moved := d.refs[demoCancelled], d.refs[demoRescheduled]
	if err := d.client.Cancel(ctx, cancelled); err != nil {
		return fmt.Errorf("cancel %s: %w", cancelled.ID, err)
	}
	delete(d.missing, cancelled.ID)
	d.say("cancelled", cancelled.ID, "must not arrive")
	if err := d.client.Reschedule(ctx, moved, delay.After(demoNewDelay)); err != nil {
		return fmt.Errorf("reschedule %s: %w", moved.ID, err)
	}
	d.say("rescheduled", moved.ID, "now due in "+demoNewDelay.String())
	_, err := fmt.Fprintf(d.environment.stdout, "\nA consumer of NATS gets them:\n\n")
	return err
}

// consume prints what arrives until all is there.
func (d *demo) consume(ctx context.Context) error {
	for len(d.missing) > 0 {
		select {
		case a := <-d.arrivals:
			if err := d.arrived(a); err != nil {
				return err
			}
		case err := <-d.environment.servers.Failed():
			return err
		case <-ctx.Done():
			return fmt.Errorf("%s did not arrive: %w", count(len(d.missing), "message"), ctx.Err())
		}
	}
	slices.Sort(d.late)
	_, err := fmt.Fprintf(d.environment.stdout, `
Done: %d messages arrived once each, none before its due time, and the cancelled one not at all.
Lateness: median %s, most %s. Run it without --demo to try it yourself.
`, len(d.late), milliseconds(d.late[len(d.late)/2]), milliseconds(d.late[len(d.late)-1]))
	return err
}

func (d *demo) arrived(a dev.Arrival) error {
	i := slices.IndexFunc(d.refs, func(r delay.Ref) bool { return r.ID == a.ID })
	if i < 0 {
		return nil // Another producer's.
	}
	d.say("arrived", a.ID, milliseconds(a.At.Sub(a.DueAt))+" late")
	switch {
	case i == demoCancelled:
		return errors.New("the cancelled message arrived")
	case a.At.Before(a.DueAt):
		return fmt.Errorf("%s arrived before its due time", a.ID)
	case !d.missing[a.ID]:
		return fmt.Errorf("%s arrived twice", a.ID)
	}
	delete(d.missing, a.ID)
	d.late = append(d.late, a.At.Sub(a.DueAt))
	return nil
}

// say prints one line of the show.
func (d *demo) say(what, id, more string) {
	_, _ = fmt.Fprintf(d.environment.stdout, "  %4.2f s  %-11s  %s  %s\n", // A closed terminal is seen at the end.
		time.Since(d.began).Seconds(), what, id, more)
}
