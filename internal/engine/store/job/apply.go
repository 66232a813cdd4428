package job

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// markLength is how much of the tokens that a job gives is the job's mark; the rest
// is their number.
const markLength = 8

// item is a message as the job is to change it.
func (j *record) item(m *inspect.Listed) item {
	member := m.Member()
	it := item{Member: member, Life: m.Found.Token}
	if m.Found.Err != nil {
		it.Life = ""
	}
	if message.IsOutboxToken(it.Life) {
		sum := sha256.Sum256([]byte(j.Mark + it.Life + member))
		it.Token = base64.RawURLEncoding.EncodeToString(sum[:12])
		return it
	}
	var raw [8]byte
	j.Serial++
	binary.BigEndian.PutUint64(raw[:], j.Serial)
	it.Token = j.Mark + base64.RawURLEncoding.EncodeToString(raw[2:])
	return it
}

// unmoved are the items but for messages of rows that the job has moved already.
func (j *Jobs) unmoved(ctx context.Context, verb Verb, items []item) (rest []item, err error) {
	layout, err := j.queue.Layout(ctx)
	if err != nil {
		return nil, err
	}
	if verb != Reschedule && verb != Redrive {
		return items, nil
	}
	pipe := j.queue.Redis(ctx).Pipeline()
	asked := make([][]*redis.BoolCmd, len(items))
	for i, item := range items {
		if !message.IsOutboxToken(item.Life) {
			continue
		}
		for _, home := range layout.Homes(message.SplitMember(item.Member)) {
			asked[i] = append(asked[i], pipe.HExists(ctx, layout.Keys()[home].Gone, item.Token))
		}
	}
	if pipe.Len() > 0 {
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, err
		}
	}
	for i, item := range items {
		moved := false
		for _, cmd := range asked[i] {
			moved = moved || cmd.Val()
		}
		if !moved {
			rest = append(rest, item)
		}
	}
	return rest, nil
}

// apply asks for each item what the job wants; one answer an item, by index. A message that
// cannot be read was matched without its token: another may be there by now, so its topic is
// asked for, too.
func (j *Jobs) apply(ctx context.Context, spec *Spec, items []item) []store.Answer {
	change := store.BulkChange{OnlyDead: spec.Verb == Redrive || spec.Verb == Purge, Topic: spec.Filter.Topic}
	ofRows := change
	if spec.Verb == Reschedule || spec.Verb == Redrive {
		to := spec.to()
		change.To, ofRows.To, ofRows.Remembered = &to, &to, life // See Run.
	}
	answers := make([]store.Answer, len(items))
	for _, isRow := range []bool{false, true} {
		var part []store.BulkItem
		var at []int
		for i, item := range items {
			if message.IsOutboxToken(item.Life) == isRow {
				part, at = append(part, store.BulkItem(item)), append(at, i)
			}
		}
		for n, answer := range j.queue.ChangeMany(ctx, change, part) {
			answers[at[n]] = answer
		}
		change = ofRows
	}
	return answers
}

// to is the new due time.
func (s *Spec) to() store.When {
	switch {
	case s.By != 0:
		return store.When{FromOwn: true, Ms: s.By.Milliseconds()}
	case s.At.IsZero(): // now
		return store.When{Relative: true}
	default:
		return store.When{Ms: s.At.UnixMilli()}
	}
}
