package store

import (
	"context"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/message"

	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Reclaim puts the messages of one claim back to where they waited, marked maybe
// published: of a claim past its deadline, or as r says. more is true where there
// are further ones.
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

// HandOver gives the shard up at once where instance holds it.
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
