package store

import (
	"context"
	"fmt"
)

// Reclaim puts the messages of one claim back at their due times, marked maybe
// published: of a claim past its deadline, or, with foreign, of any claim of
// another instance. It does so only while instance holds the shard. more is true
// where there are further ones.
func (q *Queue) Reclaim(ctx context.Context, shard int, instance string, foreign bool) (reclaimed int, more bool, err error) {
	k, err := q.shard(shard)
	if err != nil {
		return 0, false, err
	}
	cmd, err := reclaimScript.run(ctx, q.client(ctx),
		[]string{k.due, k.claims, k.deadlines, k.attempts, k.holder, k.meta}, instance, flag(foreign))
	if err != nil {
		return 0, false, fmt.Errorf("reclaim: %w", err)
	}
	r := newReply(cmd)
	return int(r.int(0)), r.int(1) == 1, r.bad
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
