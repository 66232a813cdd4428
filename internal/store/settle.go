package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/delaybridge/delaybridge/internal/message"
)

// Settle ends a claim: each message is removed, put back or buried, as its
// verdict says. stale is true where the claim had ended already: then nothing
// changes, but messages that were or may have been published are marked so. A
// call without an answer may be repeated with Repeated set.
func (q *Queue) Settle(ctx context.Context, shard int, s message.Settlement) (stale bool, err error) {
	k, err := q.shard(shard)
	if err != nil {
		return false, err
	}
	keys := []string{k.due, k.msg, k.claims, k.deadlines, k.attempts, k.dead, k.deadMsg, k.meta}
	traced := countTraced(&s)
	if traced.outbox > 0 {
		keys = append(keys, k.gone, k.goneTTL, k.settled)
	}
	if q.ledger == nil {
		traced.told = 0
	}
	cmd, err := settleScript.run(ctx, q.client(ctx), keys, settleArgs(&s, traced)...)
	if err != nil {
		return false, fmt.Errorf("settle: %w", err)
	}
	r := newReply(cmd)
	stale = r.int(0) == 1
	if traced.told > 0 && !stale && r.bad == nil {
		q.ledger(shard)
	}
	return stale, r.bad
}

// settleArgs sorts the verdicts by verb, as the script takes them.
func settleArgs(s *message.Settlement, traced traced) []any {
	acked, back, dead, retries, duplicates := count(s)
	args := make([]any, 13, 13+acked+4*back+4*dead)
	var tokens strings.Builder
	tokens.Grow((acked + back) * message.TokenLength)
	for _, kind := range traced.kinds() {
		for i, v := range s.Verdicts {
			m := &s.Claim.Messages[i]
			if v.Verb == message.VerbAck && (kind == anyKind || kindOf(m.Token) == kind) {
				args = append(args, m.Member)
				writeToken(&tokens, m.Token)
			}
		}
	}
	for i, v := range s.Verdicts {
		m := &s.Claim.Messages[i]
		if v.Verb == message.VerbRetry || v.Verb == message.VerbRelease {
			args = append(args, m.Member, backAt(m, v), attemptsArg(v.Attempts), flag(v.Published))
			writeToken(&tokens, m.Token)
		}
	}
	for i, v := range s.Verdicts {
		if m := &s.Claim.Messages[i]; v.Verb == message.VerbDeadLetter {
			args = append(args, m.Member, m.DueAt.UnixMilli(), v.Attempts.String(), v.Reason)
		}
	}
	args[0], args[1], args[2], args[3], args[4] = s.Claim.Token.String(), flag(s.Repeated), acked, back, dead
	args[5], args[6], args[7] = retries, duplicates, tokens.String()
	args[8], args[9] = packedEnds(s.Claim.Messages)
	args[10], args[11], args[12] = traced.outbox, traced.told, tombstone.Milliseconds()
	return args
}

// packedEnds are the first and the last entry of the claim as claim.lua packed them.
func packedEnds(claimed []message.Claimed) (first, last string) {
	if len(claimed) == 0 {
		return "", ""
	}
	entry := func(m *message.Claimed) string {
		return fmt.Sprintf("%d:%d:%s", len(m.Member), m.DueAt.UnixMilli(), m.Member)
	}
	return entry(&claimed[0]), entry(&claimed[len(claimed)-1])
}

func count(s *message.Settlement) (acked, back, dead, retries, duplicates int) {
	for i, v := range s.Verdicts {
		switch v.Verb {
		case message.VerbAck:
			acked++
			if s.Claim.Messages[i].Attempts.MaybeOut > 0 {
				duplicates++
			}
		case message.VerbRetry:
			back++
			retries++
		case message.VerbRelease:
			back++
		case message.VerbDeadLetter:
			dead++
		}
	}
	return acked, back, dead, retries, duplicates
}

// writeToken keeps the width where a message could not be decoded and has none.
func writeToken(b *strings.Builder, token string) {
	if len(token) != message.TokenLength {
		token = strings.Repeat("-", message.TokenLength)
	}
	b.WriteString(token)
}

func backAt(m *message.Claimed, v message.Verdict) string {
	if v.Verb == message.VerbRetry {
		return When{Relative: true, Ms: v.Delay.Milliseconds()}.String()
	}
	return When{Ms: m.DueAt.UnixMilli()}.String()
}

func attemptsArg(a message.Attempts) string {
	if a == (message.Attempts{}) {
		return ""
	}
	return a.String()
}

func flag(set bool) int {
	if set {
		return 1
	}
	return 0
}
