package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/message"

	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// markStale marks the live messages of a late settlement that were handed to the
// broker. If the settlement was repeated and no message lives, our own first run
// has ended the claim, so it is not stale.
//
// It is a step of its own, since it may have to read large bodies. If it does
// not happen, whatever ended the claim has marked the messages; the exception is
// a failover, which equals a crash before the settlement.
func (q *Shard) markStale(ctx context.Context, k keys.Shard, s *message.Settlement) (stale bool, err error) {
	stale = !s.Repeated
	for handed := handedOut(s); len(handed) > 0; {
		args := append([]any{scripts.Flag(!stale), MaxBatchBytes}, handed[:min(len(handed), 2*MaxBatch)]...)
		cmd, err := q.conn.Run(ctx, scripts.Mark, []string{k.Msg, k.Attempts, k.Meta}, args...)
		if err != nil {
			return stale, fmt.Errorf("mark what was settled too late: %w", err)
		}
		r := scripts.NewReply(cmd)
		looked, marked := int(r.Int(0)), r.Int(1)
		if r.Err != nil {
			return stale, r.Err
		}
		stale = stale || marked > 0
		handed = handed[2*looked:]
	}
	return stale, nil
}

// handedOut returns the messages that were or may have been handed to the
// broker, and their tokens.
func handedOut(s *message.Settlement) []any {
	var list []any
	for i := range s.Verdicts {
		m, v := &s.Claim.Messages[i], &s.Verdicts[i]
		if v.Verb != message.VerbKeep && (v.Verb == message.VerbAck || v.Published) {
			list = append(list, m.Member, tokenOf(m))
		}
	}
	return list
}

// tokenOf returns the message's token, or one that nothing has if the message could not be decoded.
func tokenOf(m *message.ClaimedMessage) string {
	if len(m.Token) != message.TokenLength {
		return strings.Repeat("-", message.TokenLength)
	}
	return m.Token
}
