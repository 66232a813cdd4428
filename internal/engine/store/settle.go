package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
	"github.com/delaybridge/delaybridge/internal/engine/store/sound"
)

// What one script ends in the dead letters, takes out of the index of tags, or remembers,
// weighs together so much at the most.
const (
	mostWeight = 500
	deadWeight = 5
	tagWeight  = 2
	endWeight  = 3
)

// weight is what makes settling a message take longer than settling others.
func weight(m *message.Claimed, v *message.Verdict, history bool) (sum int) {
	switch v.Verb {
	case message.VerbDeadLetter:
		sum = deadWeight
	case message.VerbAck, message.VerbDrop:
		sum = tagWeight * m.CountTags()
	default:
		return 0
	}
	if history {
		sum += endWeight
	}
	return sum
}

// errVerdict is returned for a settlement that cannot be meant.
var errVerdict = errors.New("verdict of a message")

// Settle ends a claim or a part of it: each message is removed, dropped, put back, parked
// or buried, as its verdict says, and those of [message.VerbKeep] stay in the
// claim. stale is true where the claim was not as s has it: then nothing changes,
// but messages that were or may have been published are marked so. A call without
// an answer may be repeated with Repeated set.
func (q *Shard) Settle(ctx context.Context, s message.Settlement) (stale bool, err error) {
	k, err := q.keysOf(q.number)
	if err != nil {
		return false, err
	}
	if err := checkVerdicts(&s); err != nil {
		return false, err
	}
	met := false // An earlier run may have got as far as any of the parts.
	for part := range parts(s, q.layouts.InUse().Rules.History.IsKept()) {
		stale, err := q.settlePart(ctx, k, &part)
		if err != nil {
			return false, err
		}
		if stale && met {
			return q.markStale(ctx, k, &part)
		}
		if met = !stale; !met && !s.Repeated {
			break
		}
	}
	if !met {
		return q.markStale(ctx, k, &s)
	}
	return false, nil
}

// parts cuts a settlement into what one script may do: those that end few
// messages in the dead letters, whose bodies it moves, or with many tags, or in all where
// there is a history.
func parts(s message.Settlement, history bool) iter.Seq[message.Settlement] {
	return func(yield func(message.Settlement) bool) {
		for totalWeight(&s, history) > mostWeight {
			part, rest := s, s
			part.Verdicts, rest.Verdicts, rest.Claim.Messages, rest.Parks = slices.Clone(s.Verdicts), nil, nil, nil
			seen := 0
			for i, v := range s.Verdicts {
				w := weight(&s.Claim.Messages[i], &v, history)
				if seen += w; v.Verb == message.VerbKeep || w > 0 && seen > mostWeight {
					part.Verdicts[i] = message.Verdict{Verb: message.VerbKeep}
					rest.Verdicts = append(rest.Verdicts, v)
					rest.Claim.Messages = append(rest.Claim.Messages, s.Claim.Messages[i])
				}
			}
			if !yield(part) {
				return
			}
			s = rest
		}
		yield(s)
	}
}

func totalWeight(s *message.Settlement, history bool) (sum int) {
	for i := range s.Verdicts {
		sum += weight(&s.Claim.Messages[i], &s.Verdicts[i], history)
	}
	return sum
}

// settlePart runs the script once.
func (q *Shard) settlePart(ctx context.Context, k keys.Shard, s *message.Settlement) (stale bool, err error) {
	layout := q.layouts.InUse()
	b := sortVerdicts(s, q.ledger != nil, layout.Rules.History.IsKept())
	if b.kept == len(s.Verdicts) && b.kept > 0 {
		return false, nil
	}
	keys := []string{k.Due, k.Msg, k.Claims, k.Deadlines, k.Attempts, k.Dead, k.DeadMsg, k.Meta, k.Routes}
	if b.traced.outbox > 0 || len(b.extras.tags) > 0 || len(b.extras.ends) > 0 {
		keys = append(keys, k.Gone, k.GoneTTL, k.Settled, k.Tags)
	}
	args := b.args(s)
	if len(b.extras.ends) > 0 {
		var limits string
		keys, limits = layout.WithHistory(k, keys)
		args = append(append(args, b.extras.ends...), len(b.extras.ends)/2, limits)
	}
	cmd, err := q.conn.Run(ctx, scripts.Settle, keys, args...)
	if err != nil {
		return false, fmt.Errorf("settle: %w", err)
	}
	n, err := cmd.Int()
	if stale = n == 1; !stale && err == nil && b.traced.told > 0 {
		q.ledger(q.number)
	}
	return stale, err
}

func checkVerdicts(s *message.Settlement) error {
	if len(s.Verdicts) != len(s.Claim.Messages) {
		return fmt.Errorf("%w: %d for %d messages", errVerdict, len(s.Verdicts), len(s.Claim.Messages))
	}
	for _, v := range s.Verdicts {
		if v.Verb == message.VerbPark && (v.Slot < 1 || v.Slot > message.MaxSlot) {
			return fmt.Errorf("%w: slot %d, must be from 1 to %d", errVerdict, v.Slot, message.MaxSlot)
		}
	}
	return nil
}

// sorted are the verdicts of a settlement by what the script does with them, and
// their arguments.
type sorted struct {
	removed, back, dead []any
	extras              extras
	dropped, duplicates int // of removed
	retried, parked     int // of back
	kept                int
	traced              traced
	tokens              strings.Builder // of the outbox messages among removed, with their fates
	before              int             // the length of the packed claim
	first, last         string          // its ends
	after               []byte          // what is left of it
}

// extras are what is kept of messages that end beside themselves.
type extras struct {
	tags    []any // of removed, their entries in the index
	ends    []any // of removed and dead, what the history remembers of them
	history bool  // there is one
}

func sortVerdicts(s *message.Settlement, ledger, history bool) *sorted {
	b := &sorted{traced: countTraced(s), extras: extras{history: history}, removed: make([]any, 0, len(s.Verdicts))}
	b.pack(s)
	for _, kind := range b.traced.kinds() {
		for i := range s.Verdicts {
			m := &s.Claim.Messages[i]
			if removes(s.Verdicts[i].Verb) && (kind == anyKind || kindOf(m.Token) == kind) {
				b.remove(m, &s.Verdicts[i], kind)
			}
		}
	}
	for i := range s.Verdicts {
		m, v := &s.Claim.Messages[i], &s.Verdicts[i]
		switch v.Verb {
		case message.VerbRetry:
			b.retried++
			again := When{Relative: true, Ms: v.Delay.Milliseconds()}
			b.back = append(b.back, m.Member, again.String(), message.NewHistory(v.Attempts, m.DueAt).String())
		case message.VerbPark:
			b.parked++
			b.back = append(b.back, m.Member, message.ParkedScore(v.Slot, m.DueAt), attemptsArg(m, v))
		case message.VerbRelease:
			b.back = append(b.back, m.Member, m.DueAt.UnixMilli(), attemptsArg(m, v))
		case message.VerbDeadLetter:
			b.dead = append(b.dead, m.Member, m.DueAt.UnixMilli(), v.Attempts.String(), v.Reason)
			b.remember(m, message.EndDead, v.Attempts.Begun+1, v.Reason)
		case message.VerbKeep:
			b.kept++
		case message.VerbAck, message.VerbDrop:
		}
	}
	if !ledger {
		b.traced.told = 0
	}
	return b
}

// removes reports whether the verb ends the message, not to be found again.
func removes(verb message.Verb) bool { return verb == message.VerbAck || verb == message.VerbDrop }

func (b *sorted) remove(m *message.Claimed, v *message.Verdict, kind tokenKind) {
	b.removed = append(b.removed, m.Member)
	for _, tag := range m.Tags() {
		b.extras.tags = append(b.extras.tags, sound.TagEntry(tag, m.Member))
	}
	fate := byte('p')
	switch {
	case v.Verb == message.VerbDrop:
		b.dropped++
		if fate = 'c'; m.Attempts.MaybeOut > 0 {
			fate = 'C'
		}
		b.remember(m, message.EndDropped, m.Attempt, v.Reason)
	case m.Attempts.MaybeOut > 0:
		b.duplicates++
		fallthrough
	default:
		b.remember(m, message.EndPublished, m.Attempt, v.Place)
	}
	if kind == rowKind || kind == tracedKind {
		b.tokens.WriteByte(fate)
		b.tokens.WriteString(m.Token)
	}
}

// remember notes what the history remembers of a message.
func (b *sorted) remember(m *message.Claimed, kind message.EndKind, attempt int, detail string) {
	if !b.extras.history {
		return
	}
	end := message.End{Kind: kind, DueAt: m.DueAt, Topic: m.Topic, Attempt: attempt, Detail: detail}
	b.extras.ends = append(b.extras.ends, m.Member, end.String())
}

// pack computes the claim as claim.lua has packed it, before and after.
func (b *sorted) pack(s *message.Settlement) {
	var entry []byte
	for i := range s.Claim.Messages {
		m := &s.Claim.Messages[i]
		entry = strconv.AppendInt(entry[:0], int64(len(m.Member)), 10)
		entry = strconv.AppendInt(append(entry, ':'), m.Score, 10)
		entry = append(append(entry, ':'), m.Member...)
		b.before += len(entry)
		if i == 0 {
			b.first = string(entry)
		}
		if i == len(s.Claim.Messages)-1 {
			b.last = string(entry)
		}
		if s.Verdicts[i].Verb == message.VerbKeep {
			b.after = append(b.after, entry...)
		}
	}
}

// args are in the order of the script.
func (b *sorted) args(s *message.Settlement) []any {
	parks := parkArgs(s.Parks)
	args := make([]any, 0, 18+len(b.removed)+len(b.back)+len(b.dead)+len(parks)+len(b.extras.tags))
	args = append(args, s.Claim.Token.String(), b.before, b.first, b.last, b.after, scripts.Flag(s.Repeated),
		len(b.removed), len(b.back)/3, len(b.dead)/4, len(s.Parks), b.retried, b.parked, b.duplicates,
		b.traced.outbox, b.traced.told, b.tokens.String(), tombstone.Milliseconds(), b.dropped)
	args = append(args, b.removed...)
	args = append(args, b.back...)
	args = append(args, b.dead...)
	args = append(args, parks...)
	return append(args, b.extras.tags...)
}

// attemptsArg is what is stored for a message whose score tells the promised due
// time: "-" for nothing, and the empty string where that is stored already.
func attemptsArg(m *message.Claimed, v *message.Verdict) string {
	_, ms := message.SplitScore(m.Score)
	attempts, told := v.Attempts, ms == m.DueAt.UnixMilli()
	if attempts == (message.Attempts{}) {
		attempts = m.Attempts
	}
	switch {
	case told && attempts == m.Attempts:
		return ""
	case attempts == (message.Attempts{}):
		return "-"
	}
	return attempts.String()
}
