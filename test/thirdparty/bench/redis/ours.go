package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

const (
	prefix   = "bench"
	queue    = "ours"
	lifetime = time.Hour // of claims and leases
)

// ours is the SDK, and the store as the poller uses it.
type ours struct {
	alike  bool
	client *delay.Client
	queue  *store.Queue
	body   []byte
}

func newOurs(ctx context.Context, rdb *redis.Client, alike bool) (subject, error) {
	q := store.NewWithTimeout(rdb, prefix, queue, patience)
	_, err := q.Layouts().Ensure(ctx, store.Layout{Shards: shards, Sink: message.NATS, MaxMessage: message.DefaultMaxSize})
	if err != nil {
		return nil, err
	}
	client, err := delay.NewClient(rdb, queue, delay.WithPrefix(prefix))
	return &ours{alike: alike, client: client, queue: q, body: make([]byte, bodySize)}, err
}

func (o *ours) schedule(ctx context.Context, first, n int) error {
	requests := make([]delay.Request, n)
	for i := range requests {
		requests[i] = delay.Request{
			Message: delay.Message{ID: identity(first + i), Topic: "topic", Body: o.body},
			When:    delay.At(time.UnixMilli(dueAt(first+i, o.alike))),
		}
	}
	results, err := o.client.ScheduleBatch(ctx, requests)
	for i := range results {
		err = errors.Join(err, results[i].Err)
	}
	return err
}

func (o *ours) drain(ctx context.Context, number int) (drained int, err error) {
	shard := o.queue.Shard(number)
	settlement := message.Settlement{Verdicts: make([]message.Verdict, batchSize)}
	for i := range settlement.Verdicts {
		settlement.Verdicts[i] = message.Verdict{Verb: message.VerbAck, Published: true}
	}
	for n := uint64(1); ; n++ {
		claim, err := shard.Claim(ctx, message.ClaimRequest{
			Token: message.ClaimToken{Instance: "bench", Number: n}, Max: batchSize, Timeout: lifetime, Lease: lifetime,
		})
		if err != nil || len(claim.Messages) == 0 {
			return drained, err
		}
		part := settlement
		part.Claim, part.Verdicts = claim, part.Verdicts[:len(claim.Messages)]
		stale, err := shard.Settle(ctx, part)
		if err != nil || stale {
			return drained, errors.Join(err, fmt.Errorf("shard %d: stale: %v", number, stale))
		}
		drained += len(claim.Messages)
		if !claim.More {
			return drained, nil
		}
	}
}
