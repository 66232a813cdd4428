package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// WithDurability sets the durability of a bridge's writes: its claims, confirmed
// by [Shard.Confirm], and the writes of [Rows]. It returns the queue; call it
// before the queue is used. A producer's calls name their own durability.
func (q *Queue) WithDurability(d Durability) *Queue {
	q.durable = d
	return q
}

var (
	errUnconfirmed = errors.New("not confirmed")
	errNoClaim     = errors.New("redis has lost the claim")
)

// Confirm returns nil once a claim of the shard is as durable as the queue asks.
// With any error the claim may not survive a failover; [ErrNoFsync] means that
// this Redis cannot confirm writes to its disk at all.
func (q *Shard) Confirm(ctx context.Context, token message.ClaimToken) error {
	k, err := q.keysOf(q.number)
	if err != nil {
		return err
	}
	cmd, err := q.confirm(ctx, k.Meta, scripts.Confirm, k.Claims, token.String())
	if err != nil {
		return fmt.Errorf("confirm claim: %w", err)
	}
	if isHere, err := cmd.Bool(); err != nil || !isHere {
		return fmt.Errorf("confirm claim: %w", errors.Join(errNoClaim, err))
	}
	return nil
}

// Unconfirmed asks every node now whether it provides the queue's durability, and
// returns, by shard, why it does not: nil if it does, or if the queue asks for none. It
// fails if the layout is not known.
func (q *Queue) Unconfirmed(ctx context.Context) ([]error, error) {
	if !q.durable.IsSet() {
		return nil, nil
	}
	layout, err := q.Layout(ctx)
	if err != nil {
		return nil, err
	}
	whys := make([]error, layout.Polled())
	asked := map[redis.UniversalClient]error{}
	for shard := range whys {
		meta := layout.Keys()[shard].Meta
		node, _, err := q.conn.Node(ctx, meta)
		if err != nil {
			whys[shard] = err
			continue
		}
		why, known := asked[node]
		if !known {
			_, why = q.confirm(ctx, meta, scripts.Touch, meta)
			asked[node] = why
		}
		whys[shard] = why
	}
	return whys, nil
}

// confirm runs a script of one key until the writes before it are as durable as
// the queue asks. The anchor is as for [conn.Confirmer.RunConfirmed].
func (q *core) confirm(ctx context.Context, anchor string, s *scripts.Script, key string, args ...any) (*redis.Cmd, error) {
	return q.confirmAs(ctx, q.durable, anchor, s, key, args...)
}

func (q *core) confirmAs(ctx context.Context, d Durability, anchor string, s *scripts.Script, key string, args ...any) (*redis.Cmd, error) {
	place, err := q.conn.Enter(ctx, d, anchor)
	if err != nil {
		return nil, err
	}
	defer place.Leave()
	cmd, missing, err := q.conn.RunConfirmed(ctx, place, d, false, anchor, s, []string{key}, args...)
	if err == nil && missing != nil {
		err = fmt.Errorf("%w: %w", errUnconfirmed, missing)
	}
	return cmd, err
}
