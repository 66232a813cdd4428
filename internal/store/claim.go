package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
)

// errNotReady is returned by a poller's verbs before the layout is known.
var errNotReady = fmt.Errorf("%w: ensure it first", ErrNoLayout)

func (q *Queue) shard(shard int) (shardKeys, error) {
	layout := q.layout.Load()
	if layout == nil {
		return shardKeys{}, errNotReady
	}
	switch {
	case shard < 0 || shard >= MaxShards:
		return shardKeys{}, fmt.Errorf("shard %d: must be from 0 to %d", shard, MaxShards-1)
	case shard >= len(layout.keys.shards):
		// It was dropped, and whoever polls it will hear so from Redis.
		return newShardKeys(q.prefix, q.name, shard), nil
	}
	return layout.keys.shards[shard], nil
}

// Claim takes due messages of a shard and renews the holder's lease. It may be
// repeated with the same token until it is answered. The layout must be known,
// see [Queue.EnsureLayout].
func (q *Queue) Claim(ctx context.Context, shard int, request message.ClaimRequest) (message.Claim, error) {
	k, err := q.shard(shard)
	if err != nil {
		return message.Claim{}, err
	}
	args := make([]any, 0, 6+len(request.Live))
	args = append(args, request.Token.Instance, request.Token.Number, min(request.Max, MaxBatch), MaxBatchBytes,
		request.Timeout.Milliseconds(), request.Lease.Milliseconds())
	for _, live := range request.Live {
		args = append(args, live.String())
	}
	cmd, err := q.runner(request.Quiet)(ctx, claimScript, []string{
		k.due, k.msg, k.claims, k.deadlines, k.attempts, k.gone, k.goneTTL, k.holder, k.meta,
	}, args...)
	if err != nil {
		return message.Claim{}, fmt.Errorf("claim: %w", err)
	}
	r := newReply(cmd)
	claim := message.Claim{
		State: message.ClaimState(r.int(0)), Token: request.Token, Now: time.UnixMilli(r.int(1)),
		HeldFor: time.Duration(r.int(2)) * time.Millisecond,
	}
	if r.bad != nil || claim.State != message.ClaimGranted {
		return claim, r.bad
	}
	q.clock.observe(r.int(1))
	claim.More, claim.Expired = r.int(3) == 1, r.int(4) == 1
	if ms := r.int(5); ms >= 0 {
		claim.NextDue = time.UnixMilli(ms)
	}
	claim.Epoch = r.text(9)
	claim.Messages, err = q.parseClaimed(r.text(6), r.list(7), r.list(8))
	return claim, errors.Join(r.bad, err)
}

var errPacked = fmt.Errorf("%w: packed claim", errReply)

// parseClaimed reads "length:due_ms:id" for each message, with its attempts and body.
func (q *Queue) parseClaimed(packed string, attempts, stored *reply) ([]message.Claimed, error) {
	claimed := make([]message.Claimed, len(stored.values))
	for i := range claimed {
		length, rest, ok := cutInt(packed)
		if !ok {
			return nil, errPacked
		}
		due, rest, ok := cutInt(rest)
		if !ok || length < 0 || length > int64(len(rest)) {
			return nil, errPacked
		}
		c := &claimed[i]
		c.Member, packed = rest[:length], rest[length:]
		c.ID, c.Key = message.SplitMember(c.Member)
		c.Queue, c.DueAt = q.name, time.UnixMilli(due)
		if len(attempts.values) > 0 {
			c.Attempts, c.Err = message.ParseAttempts(attempts.text(i))
		}
		if err := c.Decode(stored.text(i)); c.Err == nil {
			c.Err = err
		}
		c.Attempt = c.Attempts.Begun + 1
	}
	return claimed, errors.Join(attempts.bad, stored.bad)
}

// cutInt reads a decimal number and the colon behind it.
func cutInt(s string) (n int64, rest string, ok bool) {
	for i := 0; i < len(s); i++ {
		if s[i] == ':' {
			n, err := strconv.ParseInt(s[:i], 10, 64)
			return n, s[i+1:], err == nil
		}
	}
	return 0, "", false
}
