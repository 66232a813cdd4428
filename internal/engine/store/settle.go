package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/delaybridge/delaybridge/internal/engine/message"

	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
	"github.com/delaybridge/delaybridge/internal/engine/store/sound"
)

// errVerdict is returned for an invalid settlement.
var errVerdict = errors.New("verdict of a message")

// Settle ends a claim or a part of it: each message is removed, dropped, put back, parked
// or buried, as its verdict says, and those of [message.VerbKeep] stay in the claim.
// stale is true if the claim is not as s has it: then nothing changes, except that
// messages that were or may have been published are marked. A call without an answer may
// be repeated with Repeated set.
func (q *Shard) Settle(ctx context.Context, s message.Settlement) (stale bool, err error) {
	if len(s.Verdicts) != len(s.Claim.Messages) {
		return false, fmt.Errorf("%w: %d for %d messages", errVerdict, len(s.Verdicts), len(s.Claim.Messages))
	}
	k, err := q.keysOf(q.number)
	if err != nil {
		return false, err
	}
	met := false // An earlier run may have settled any number of the parts.
	for part, isLast := s, false; !isLast; {
		b, err := sortVerdicts(&part, q.layouts.InUse().Rules.History.IsKept())
		if err == nil {
			stale, err = q.settlePart(ctx, k, &part, b)
		}
		if err != nil {
			return false, err
		}
		if stale && met {
			return q.markStale(ctx, k, &part)
		}
		if met = !stale; !met && !s.Repeated {
			break
		}
		if isLast = !b.isCut; b.isCut {
			part = b.rest(&part)
		}
	}
	if !met {
		return q.markStale(ctx, k, &s)
	}
	return false, nil
}

// settlePart runs the script once.
func (q *Shard) settlePart(ctx context.Context, k keys.Shard, s *message.Settlement, b *settleArgs) (stale bool, err error) {
	if len(b.remaining) == len(s.Verdicts) && len(b.remaining) > 0 {
		return false, nil
	}
	told := len(b.removed[ofRow])
	if q.ledger == nil {
		told = 0
	}
	keys, args := []string{k.Due, k.Msg, k.Claims, k.Deadlines, k.Attempts, k.Dead, k.DeadMsg, k.Meta, k.Routes}, b.args(s, told)
	if len(b.removed[ofRow])+len(b.removed[traced])+len(b.tags)+len(b.ends) > 0 {
		keys = append(keys, k.Gone, k.GoneTTL, k.Settled, k.Tags)
	}
	if len(b.ends) > 0 {
		var limits string
		keys, limits = q.layouts.InUse().WithHistory(k, keys)
		args = append(append(args, b.ends...), len(b.ends)/2, limits)
	}
	cmd, err := q.conn.Run(ctx, scripts.Settle, keys, args...)
	if err != nil {
		return false, fmt.Errorf("settle: %w", err)
	}
	n, err := cmd.Int()
	if stale = n == 1; !stale && err == nil && told > 0 {
		q.ledger(q.number)
	}
	return stale, err
}

// The most that one script may weigh: dead letters, entries of tags to remove, and ends
// to remember.
const (
	mostWeight = 500
	deadWeight = 5
	tagWeight  = 2
	endWeight  = 3
)

// weight is the extra cost of settling a message.
func weight(m *message.ClaimedMessage, verb message.Verb, history bool) (sum int) {
	switch verb {
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

// kindOf classifies a token: the end of a message that belongs to a row leaves a tombstone
// and an entry in the ledger, that of a traced message a tombstone.
func kindOf(token string) int {
	switch {
	case message.IsRowToken(token):
		return ofRow
	case message.IsOutboxToken(token):
		return traced
	default:
		return plain
	}
}

// The kinds, in the order in which the script takes removed messages.
const (
	ofRow, traced, plain = 0, 1, 2
	kinds                = 3
)

// settleArgs are the verdicts of a settlement, grouped by what one script does with them: all of
// them, or as many as fit into it.
type settleArgs struct {
	removed    [kinds][]any
	fates      [kinds][]byte // and tokens of the removed, except the plain ones
	back, dead []any
	tags       []any // entries of the removed in the index
	ends       []any // of the removed and the dead, for the history

	dropped, duplicates int // of removed
	retried, parked     int // of back

	remaining   []int  // messages that stay in the claim
	before      int    // the length of the packed claim
	first, last []byte // its ends
	after       []byte // the packed claim after it
	isCut       bool
	history     bool // whether there is one
}

func sortVerdicts(s *message.Settlement, history bool) (*settleArgs, error) {
	b := &settleArgs{history: history}
	b.removed[plain] = make([]any, 0, len(s.Verdicts))
	sum, entry := 0, []byte(nil)
	for i := range s.Verdicts {
		m, v := &s.Claim.Messages[i], &s.Verdicts[i]
		entry = strconv.AppendInt(entry[:0], int64(len(m.Member)), 10) // As claim.lua has packed it.
		entry = strconv.AppendInt(append(entry, ':'), m.Score, 10)
		entry = append(append(entry, ':'), m.Member...)
		if b.before += len(entry); i == 0 {
			b.first = slices.Clone(entry)
		}
		w := weight(m, v.Verb, history)
		if sum += w; v.Verb == message.VerbKeep || w > 0 && sum > mostWeight {
			b.isCut = b.isCut || v.Verb != message.VerbKeep
			b.remaining, b.after = append(b.remaining, i), append(b.after, entry...)
		} else if err := b.add(m, v); err != nil {
			return nil, err
		}
	}
	b.last = entry
	return b, nil
}

func (b *settleArgs) add(m *message.ClaimedMessage, v *message.Verdict) error {
	switch v.Verb {
	case message.VerbAck, message.VerbDrop:
		b.remove(m, v)
	case message.VerbRetry:
		b.retried++
		again := When{Relative: true, Ms: v.Delay.Milliseconds()}
		b.back = append(b.back, m.Member, again.String(), message.NewHistory(v.Attempts, m.DueAt).String())
	case message.VerbPark:
		if v.Slot < 1 || v.Slot > message.MaxSlot {
			return fmt.Errorf("%w: slot %d, must be from 1 to %d", errVerdict, v.Slot, message.MaxSlot)
		}
		b.parked++
		b.back = append(b.back, m.Member, message.ParkedScore(v.Slot, m.DueAt), attemptsArg(m, v))
	case message.VerbRelease:
		b.back = append(b.back, m.Member, m.DueAt.UnixMilli(), attemptsArg(m, v))
	case message.VerbDeadLetter:
		b.dead = append(b.dead, m.Member, m.DueAt.UnixMilli(), v.Attempts.String(), v.Reason)
		b.remember(m, message.EndDead, v.Attempts.Begun+1, v.Reason)
	case message.VerbKeep:
	}
	return nil
}

func (b *settleArgs) remove(m *message.ClaimedMessage, v *message.Verdict) {
	kind, fate := kindOf(m.Token), byte('p')
	b.removed[kind] = append(b.removed[kind], m.Member)
	for _, tag := range m.Tags() {
		b.tags = append(b.tags, sound.TagEntry(tag, m.Member))
	}
	if v.Verb == message.VerbDrop {
		b.dropped++
		if fate = 'c'; m.Attempts.MaybeOut > 0 {
			fate = 'C'
		}
		b.remember(m, message.EndDropped, m.Attempt, v.Reason)
	} else {
		if m.Attempts.MaybeOut > 0 {
			b.duplicates++
		}
		b.remember(m, message.EndPublished, m.Attempt, v.Place)
	}
	if kind != plain {
		b.fates[kind] = append(append(b.fates[kind], fate), m.Token...)
	}
}

// remember adds a message's end for the history.
func (b *settleArgs) remember(m *message.ClaimedMessage, kind message.EndKind, attempt int, detail string) {
	if !b.history {
		return
	}
	end := message.End{Kind: kind, DueAt: m.DueAt, Topic: m.Topic, Attempt: attempt, Detail: detail}
	b.ends = append(b.ends, m.Member, end.String())
}

// args returns the arguments in the order of the script, which writes told rows into the ledger.
func (b *settleArgs) args(s *message.Settlement, told int) []any {
	outbox := len(b.removed[ofRow]) + len(b.removed[traced])
	args := []any{
		s.Claim.Token.String(), b.before, b.first, b.last, b.after, scripts.Flag(s.Repeated),
		outbox + len(b.removed[plain]), len(b.back) / 3, len(b.dead) / 4, len(s.Parks), b.retried, b.parked, b.duplicates,
		outbox, told, slices.Concat(b.fates[:]...), Tombstone.Milliseconds(), b.dropped,
	}
	return slices.Concat(args, b.removed[ofRow], b.removed[traced], b.removed[plain], b.back, b.dead, parkArgs(s.Parks), b.tags)
}

// parkArgs returns the routes of a settlement as the script takes them.
func parkArgs(parks []message.ParkedRoute) []any {
	args := make([]any, 0, 4*len(parks))
	for _, p := range parks {
		sinceMs := int64(0)
		if !p.Since.IsZero() {
			sinceMs = p.Since.UnixMilli()
		}
		args = append(args, p.Slot, sinceMs, p.Route, p.Reason)
	}
	return args
}

// rest returns what the next script has to settle.
func (b *settleArgs) rest(s *message.Settlement) message.Settlement {
	rest := *s
	rest.Verdicts, rest.Claim.Messages, rest.Parks = nil, nil, nil
	for _, i := range b.remaining {
		rest.Verdicts, rest.Claim.Messages = append(rest.Verdicts, s.Verdicts[i]), append(rest.Claim.Messages, s.Claim.Messages[i])
	}
	return rest
}

// attemptsArg returns the attempts to store for a message whose score is its
// promised due time: "-" for none, and the empty string if they are stored already.
func attemptsArg(m *message.ClaimedMessage, v *message.Verdict) string {
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
