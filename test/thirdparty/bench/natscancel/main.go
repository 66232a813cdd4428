// Command natscancel races cancels of NATS' own message schedules against their firing, and
// counts what the server says and what a consumer gets: docs/comparison.md has the figures.
//
// A cancel is a publish with Nats-Scheduler and Nats-Schedule-Next: purge (nats-server 2.14),
// with the schedule's sequence as what must be the last on its subject: where it has fired,
// the server refuses the publish.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

const (
	// wave is how many schedules are due at about the same time.
	wave = 500
	// The server fires at the due time or up to 250 ms later; a cancel comes at a moment of
	// this time, in the middle of which the message is due.
	spread = 400 * time.Millisecond
	// settled is how long after its wave nothing fires any more.
	settled = 2 * time.Second
)

func main() {
	count := flag.Int("count", 10_000, "how many races")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *count)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// races is what came of them. A cancel that was answered, and whose message fired all the
// same, would be a lie.
type races struct {
	mu        sync.Mutex
	cancelled map[string]bool // by subject, what the server said
	fired     map[string]bool
}

func run(ctx context.Context, count int) error {
	server, err := service.StartNATS(ctx, "")
	if err != nil {
		return err
	}
	defer server.Close()
	connection, err := nats.Connect(server.URL())
	if err != nil {
		return err
	}
	defer connection.Close()
	js, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "S", Subjects: []string{"schedule.>", "fired.>", "cancel.>"}, AllowMsgSchedules: true, AllowRollup: true, AllowMsgTTL: true,
	})
	if err != nil {
		return err
	}
	r := &races{cancelled: map[string]bool{}, fired: map[string]bool{}}
	consumer, err := js.OrderedConsumer(ctx, "S", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"fired.>"}})
	if err != nil {
		return err
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fired[m.Subject()[len("fired."):]] = true
	})
	if err != nil {
		return err
	}
	defer consuming.Stop()
	for first := 0; first < count; first += wave {
		if err := r.wave(ctx, js, first, min(wave, count-first)); err != nil {
			return err
		}
	}
	r.tell(count)
	return nil
}

// wave schedules for one instant, and cancels each at a random moment around its firing.
func (r *races) wave(ctx context.Context, js jetstream.JetStream, first, n int) error {
	due := time.Now().Add(3 * time.Second).Truncate(time.Second).Add(time.Second)
	group, racing := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() error {
			id := strconv.Itoa(first + i)
			m := nats.NewMsg("schedule." + id)
			m.Header.Set("Nats-Schedule", "@at "+due.UTC().Format(time.RFC3339))
			m.Header.Set("Nats-Schedule-Target", "fired."+id)
			ack, err := js.PublishMsg(racing, m)
			if err != nil {
				return err
			}
			select {
			case <-time.After(time.Until(due) + rand.N(spread) - spread/2):
			case <-racing.Done():
				return racing.Err()
			}
			return r.cancel(racing, js, id, ack.Sequence)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	select {
	case <-time.After(settled):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *races) cancel(ctx context.Context, js jetstream.JetStream, id string, sequence uint64) error {
	m := nats.NewMsg("cancel." + id)
	m.Header.Set("Nats-Scheduler", "schedule."+id)
	m.Header.Set("Nats-Schedule-Next", "purge")
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(sequence, 10))
	m.Header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, "schedule."+id)
	_, err := js.PublishMsg(ctx, m)
	var refused *jetstream.APIError
	hasFired := errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
	if err != nil && !hasFired {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelled[id] = err == nil
	return nil
}

func (r *races) tell(count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var inTime, tooLate, lies, lost int
	for id, cancelled := range r.cancelled {
		switch fired := r.fired[id]; {
		case cancelled && fired:
			lies++
		case cancelled:
			inTime++
		case fired:
			tooLate++
		default:
			lost++
		}
	}
	fmt.Printf("%d races: %d cancelled and not fired, %d refused and fired, %d cancelled and fired, %d refused and never fired\n",
		count, inTime, tooLate, lies, lost)
}
