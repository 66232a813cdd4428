//go:build !production

package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/dev"
	"github.com/delaybridge/delaybridge/internal/engine/ijson"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const (
	// clockBudget is for how long the clock stops at each due time: less than a
	// request may take. Then it jumps.
	clockBudget = 10 * time.Second
	// clockPatience is how long it stops for what is due to be published, and
	// clockPause is the interval between two checks.
	clockPatience = 2 * time.Second
	clockPause    = 2 * time.Millisecond
	// clockMost is the most that one request may ask for.
	clockMost = message.MaxDelayYears * 366 * 24 * time.Hour
	// clockRequest is how long a request may be, in bytes.
	clockRequest = 1 << 10
)

// devClock lets time pass in `bridge dev`: it moves the clock of Redis from one due
// time to the next, without the wait between them.
type devClock struct {
	clock  *dev.Clock // nil if it cannot be moved
	config *config.Config
	turn   chan struct{} // of 1: one request after the other
}

// clockAnswer is what a request is answered.
type clockAnswer struct {
	Now string `json:"now"`
}

// clockProblem is an answer of type application/problem+json.
type clockProblem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func newDevClock(clock *dev.Clock, cfg *config.Config) http.Handler {
	c := &devClock{clock: clock, config: cfg, turn: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /dev/clock", func(w http.ResponseWriter, _ *http.Request) { c.answer(w) })
	mux.HandleFunc("POST /dev/clock/advance", c.serveAdvance)
	return http.NewCrossOriginProtection().Handler(mux) // No page of the web moves it.
}

func (c *devClock) serveAdvance(w http.ResponseWriter, r *http.Request) {
	by, err := readAdvance(http.MaxBytesReader(w, r.Body, clockRequest))
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, "invalid", err.Error())
		return
	case c.clock == nil:
		refuse(w, http.StatusConflict, "no_clock", "the clock of redis-server cannot be moved: start bridge dev --memory")
		return
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-r.Context().Done():
		return
	}
	if err := c.advance(r.Context(), by); err != nil {
		refuse(w, http.StatusServiceUnavailable, "unavailable", err.Error())
		return
	}
	c.answer(w)
}

func readAdvance(body io.Reader) (time.Duration, error) {
	var request struct {
		By string `json:"by"`
	}
	text, err := io.ReadAll(body)
	if err == nil {
		err = ijson.Decode(text, &request)
	}
	if err != nil {
		return 0, fmt.Errorf(`give {"by": "30d"}: %w`, err)
	}
	by, err := config.ParseDuration(request.By)
	switch {
	case err != nil:
		return 0, fmt.Errorf("by %q %w", request.By, err)
	case by < 0 || by > clockMost:
		return 0, fmt.Errorf("by %q: must be from 0 to %d years", request.By, message.MaxDelayYears)
	}
	return by, nil
}

func (c *devClock) answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(clockAnswer{Now: c.clock.Now().UTC().Format(message.TimeFormat)}) // Who has gone needs none.
}

func refuse(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(clockProblem{Status: status, Code: code, Detail: detail}) // Who has gone needs none.
}

// advance lets so much time pass. At each due time on the way the clock stops until
// what is due has been published: nothing is late for that, and consumers may
// schedule what is due on the way, too.
func (c *devClock) advance(ctx context.Context, by time.Duration) error {
	rdb, err := c.config.Redis.Open("delaybridge-clock")
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	queue := store.New(rdb, c.config.Prefix, devQueue)
	layout, err := queue.LoadLayout(ctx)
	if err != nil {
		return err
	}
	end, until := c.clock.Now().Add(by), time.Now().Add(clockBudget)
	for time.Now().Before(until) {
		next, isDone, err := awaitQuiet(ctx, queue, layout)
		switch {
		case err != nil:
			return err
		case isDone && (next.IsZero() || next.After(end)):
			c.clock.MoveTo(end)
			return nil
		case isDone:
			c.clock.MoveTo(next)
		default: // Nobody publishes it: a topic is paused, or fails.
			until = time.Now()
		}
	}
	c.clock.MoveTo(end)
	return nil
}

// awaitQuiet waits until nothing is due or in flight, and returns what is due next, zero
// if nothing waits. It gives up after a while: then isDone is false.
func awaitQuiet(ctx context.Context, queue *store.Queue, layout *store.Layout) (next time.Time, isDone bool, err error) {
	for until := time.Now().Add(clockPatience); time.Now().Before(until); {
		next, isDone = time.Time{}, true
		for shard := range layout.InUse() {
			stats, err := inspect.NewAdmin(queue).Stats(ctx, shard)
			if err != nil {
				return next, false, err
			}
			isDone = isDone && stats.Due == 0 && stats.InFlight == 0
			if next.IsZero() || !stats.NextDue.IsZero() && stats.NextDue.Before(next) {
				next = stats.NextDue
			}
		}
		if isDone || !wait.Sleep(ctx, clockPause) {
			return next, isDone, ctx.Err()
		}
	}
	return next, false, nil
}
