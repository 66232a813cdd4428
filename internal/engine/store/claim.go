package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Claim takes due messages of a shard and renews the holder's lease. It may be
// repeated with the same token until it is answered.
func (q *Shard) Claim(ctx context.Context, request message.ClaimRequest) (message.Claim, error) {
	k, err := q.keysOf(q.number)
	if err != nil {
		return message.Claim{}, err
	}
	run := q.conn.Run
	if request.Quiet {
		run = q.conn.RunQuiet
	}
	cmd, err := run(ctx, scripts.Claim, []string{
		k.Due, k.Msg, k.Claims, k.Deadlines, k.Attempts, k.Gone, k.GoneTTL, k.Holder, k.Meta, k.Routes,
	}, claimArgs(&request, expired(&q.clock))...)
	if err != nil {
		return message.Claim{}, fmt.Errorf("claim: %w", err)
	}
	r := scripts.NewReply(cmd)
	claim := message.Claim{State: message.ClaimState(r.Int(0)), Token: request.Token, Now: time.UnixMilli(r.Int(1))}
	if r.Err == nil {
		q.clock.Observe(r.Int(1), time.Now())
	}
	if r.Err != nil || claim.State != message.ClaimGranted {
		claim.HeldFor, claim.Holder = time.Duration(r.Int(2))*time.Millisecond, r.Text(3)
		return claim, r.Err
	}
	q.clocks.Queue.Observe(r.Int(1), time.Now())
	claim.More = r.Int(3) == 1
	if ms := r.Int(4); ms >= 0 {
		claim.NextDue = time.UnixMilli(ms)
	}
	claim.Epoch, claim.Last = r.Text(8), uint64(r.Int(10)) //nolint:gosec // it counts
	strays := r.List(9)
	for i := range strays.Values {
		claim.Strays = append(claim.Strays, message.ParseClaimToken(strays.Text(i)))
	}
	claim.Messages, err = q.parseClaimed(r.Text(5), r.List(6), r.List(7))
	return claim, errors.Join(r.Err, strays.Err, err)
}

func claimArgs(r *message.ClaimRequest, oldMs int64) []any {
	bytes := MaxBatchBytes
	if r.MaxBytes > 0 {
		bytes = min(bytes, r.MaxBytes)
	}
	args := make([]any, 0, 10+len(r.Live)+len(r.Free))
	args = append(args, r.Token.Instance, r.Token.Number, min(r.Max, MaxBatch), bytes,
		r.Timeout.Milliseconds(), r.Lease.Milliseconds(), r.Slot, r.Seize, oldMs, len(r.Live))
	for _, live := range r.Live {
		args = append(args, live.String())
	}
	for _, slot := range r.Free {
		args = append(args, slot)
	}
	return args
}

// parseClaimed reads "length:score:id" for each message, with its attempts and body.
func (q *Shard) parseClaimed(packed string, attempts, stored *scripts.Reply) ([]message.ClaimedMessage, error) {
	claimed := make([]message.ClaimedMessage, len(stored.Values))
	for i := range claimed {
		score, member, rest, err := scripts.CutPacked(packed)
		if err != nil {
			return nil, err
		}
		c := &claimed[i]
		c.Member, packed = member, rest
		c.ID, c.Key = message.SplitMember(c.Member)
		c.Queue, c.Score = q.keys.Name, score
		var history message.History
		if len(attempts.Values) > 0 {
			history, c.Err = message.ParseHistory(attempts.Text(i))
		}
		c.Attempts, c.DueAt = history.Attempts, history.Promised(score)
		if err := c.Decode(stored.Text(i)); c.Err == nil {
			c.Err = err
		}
		c.Attempt = c.Attempts.Begun + 1
	}
	return claimed, errors.Join(attempts.Err, stored.Err)
}

// Reclaim puts the messages of one claim back, marked maybe published: a claim
// past its deadline, or the one that r names. more is true if there are further
// ones.
func (q *Shard) Reclaim(ctx context.Context, r message.Reclaim) (reclaimed int, more bool, err error) {
	k, err := q.keysOf(q.number)
	if err != nil {
		return 0, false, err
	}
	stray := ""
	if r.Stray != (message.ClaimToken{}) {
		stray = r.Stray.String()
	}
	cmd, err := q.conn.Run(ctx, scripts.Reclaim, []string{k.Due, k.Claims, k.Deadlines, k.Attempts, k.Holder, k.Meta}, r.Instance, scripts.Flag(r.Foreign), stray)
	if err != nil {
		return 0, false, fmt.Errorf("reclaim: %w", err)
	}
	answer := scripts.NewReply(cmd)
	return int(answer.Int(0)), answer.Int(1) == 1, answer.Err
}

// HandOver gives the shard up at once if instance holds it.
func (q *Shard) HandOver(ctx context.Context, instance string) error {
	k, err := q.keysOf(q.number)
	if err != nil {
		return err
	}
	if _, err := q.conn.Run(ctx, scripts.HandOver, []string{k.Holder, k.Wake}, instance); err != nil {
		return fmt.Errorf("hand over: %w", err)
	}
	return nil
}
