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
	cmd, err := q.runner(request.Quiet)(ctx, claimScript, []string{
		k.due, k.msg, k.claims, k.deadlines, k.attempts, k.gone, k.goneTTL, k.holder, k.meta, k.routes,
	}, claimArgs(&request)...)
	if err != nil {
		return message.Claim{}, fmt.Errorf("claim: %w", err)
	}
	r := newReply(cmd)
	claim := message.Claim{State: message.ClaimState(r.int(0)), Token: request.Token, Now: time.UnixMilli(r.int(1))}
	if r.bad != nil || claim.State != message.ClaimGranted {
		claim.HeldFor, claim.Holder = time.Duration(r.int(2))*time.Millisecond, r.text(3)
		return claim, r.bad
	}
	q.clock.observe(r.int(1))
	claim.More, claim.Expired = r.int(3) == 1, r.int(4) == 1
	if ms := r.int(5); ms >= 0 {
		claim.NextDue = time.UnixMilli(ms)
	}
	claim.Epoch = r.text(9)
	strays := r.list(10)
	for i := range strays.values {
		claim.Strays = append(claim.Strays, message.ParseClaimToken(strays.text(i)))
	}
	claim.Messages, err = q.parseClaimed(r.text(6), r.list(7), r.list(8))
	return claim, errors.Join(r.bad, strays.bad, err)
}

func claimArgs(r *message.ClaimRequest) []any {
	bytes := MaxBatchBytes
	if r.MaxBytes > 0 {
		bytes = min(bytes, r.MaxBytes)
	}
	args := make([]any, 0, 9+len(r.Live)+len(r.Free))
	args = append(args, r.Token.Instance, r.Token.Number, min(r.Max, MaxBatch), bytes,
		r.Timeout.Milliseconds(), r.Lease.Milliseconds(), r.Slot, r.Seize, len(r.Live))
	for _, live := range r.Live {
		args = append(args, live.String())
	}
	for _, slot := range r.Free {
		args = append(args, slot)
	}
	return args
}

var errPacked = fmt.Errorf("%w: packed claim", errReply)

// parseClaimed reads "length:score:id" for each message, with its attempts and body.
func (q *Queue) parseClaimed(packed string, attempts, stored *reply) ([]message.Claimed, error) {
	claimed := make([]message.Claimed, len(stored.values))
	for i := range claimed {
		length, rest, ok := cutInt(packed)
		if !ok {
			return nil, errPacked
		}
		score, rest, ok := cutInt(rest)
		if !ok || length < 0 || length > int64(len(rest)) {
			return nil, errPacked
		}
		c := &claimed[i]
		c.Member, packed = rest[:length], rest[length:]
		c.ID, c.Key = message.SplitMember(c.Member)
		c.Queue, c.Score = q.name, score
		var history message.History
		if len(attempts.values) > 0 {
			history, c.Err = message.ParseHistory(attempts.text(i))
		}
		c.Attempts, c.DueAt = history.Attempts, history.Promised(score)
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
