package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// States of rows, as the table has them.
const (
	rowPending = 0
	rowStored  = 1
)

// stored waits until all rows say that their messages are in Redis, and takes and
// acknowledges these, as a bridge does that publishes them.
func (w *world) stored(ctx context.Context, q *store.Queue) error {
	if err := w.none(ctx, rowPending); err != nil {
		return err
	}
	q = store.New(w.rdb, prefix, q.Name()).WithLedger(func(int) {})
	if _, err := q.Layouts().Ensure(ctx, layout); err != nil {
		return err
	}
	for _, shard := range held() {
		if err := publish(ctx, q.Shard(shard)); err != nil {
			return err
		}
	}
	return nil
}

// publish takes and acknowledges all messages of a shard.
func publish(ctx context.Context, shard *store.Shard) error {
	for number := uint64(1); ; number++ {
		claim, err := shard.Claim(ctx, message.ClaimRequest{
			Token: message.ClaimToken{Instance: "bench/1", Number: number}, Max: 500, Timeout: time.Minute, Lease: time.Minute,
		})
		if err != nil {
			return err
		}
		if claim.State != message.ClaimGranted {
			return fmt.Errorf("a claim's answer is %d", claim.State)
		}
		if len(claim.Messages) == 0 {
			return nil
		}
		verdicts := make([]message.Verdict, len(claim.Messages))
		for i := range verdicts {
			verdicts[i] = message.Verdict{Verb: message.VerbAck, Published: true}
		}
		if _, err := shard.Settle(ctx, message.Settlement{Claim: claim, Verdicts: verdicts}); err != nil {
			return err
		}
	}
}

// settled waits until all rows say that their messages were published.
func (w *world) settled(ctx context.Context) error { return w.none(ctx, rowStored) }

// none waits until no row is in that state.
func (w *world) none(ctx context.Context, state int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		var some bool
		if err := w.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+schema.DefaultTable+" WHERE status = $1)", state).Scan(&some); err != nil {
			return err
		}
		if !some {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(errTimeout, fmt.Errorf("rows in state %d: %w", state, ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
