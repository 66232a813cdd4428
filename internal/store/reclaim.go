package store

import (
	"context"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/message"
)

// Reclaim puts the messages of one claim back to where they waited, marked maybe
// published: of a claim past its deadline, or as r says. more is true where there
// are further ones.
func (q *Queue) Reclaim(ctx context.Context, shard int, r message.Reclaim) (reclaimed int, more bool, err error) {
	k, err := q.shard(shard)
	if err != nil {
		return 0, false, err
	}
	stray := ""
	if r.Stray != (message.ClaimToken{}) {
		stray = r.Stray.String()
	}
	cmd, err := reclaimScript.run(ctx, q.client(ctx),
		[]string{k.due, k.claims, k.deadlines, k.attempts, k.holder, k.meta}, r.Instance, flag(r.Foreign), stray)
	if err != nil {
		return 0, false, fmt.Errorf("reclaim: %w", err)
	}
	answer := newReply(cmd)
	return int(answer.int(0)), answer.int(1) == 1, answer.bad
}

// HandOver gives the shard up at once where instance holds it.
func (q *Queue) HandOver(ctx context.Context, shard int, instance string) error {
	k, err := q.shard(shard)
	if err != nil {
		return err
	}
	if _, err := handoverScript.run(ctx, q.client(ctx), []string{k.holder, k.wake}, instance); err != nil {
		return fmt.Errorf("hand over: %w", err)
	}
	return nil
}
