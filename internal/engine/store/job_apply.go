package store

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// markLength is how much of the tokens that a job gives is the job's mark; the rest
// is their number.
const markLength = 8

// item is a message as the job is to change it.
func (j *jobRecord) item(m *Listed) jobItem {
	member := m.member()
	item := jobItem{Member: member, Life: m.Found.Token}
	if m.Found.Err != nil {
		item.Life = ""
	}
	if message.IsOutboxToken(item.Life) {
		sum := sha256.Sum256([]byte(j.Mark + item.Life + member))
		item.Token = base64.RawURLEncoding.EncodeToString(sum[:12])
		return item
	}
	var raw [8]byte
	j.Serial++
	binary.BigEndian.PutUint64(raw[:], j.Serial)
	item.Token = j.Mark + base64.RawURLEncoding.EncodeToString(raw[2:])
	return item
}

// unmoved are the items but for messages of rows that the job has moved already.
func (q *Jobs) unmoved(ctx context.Context, verb JobVerb, items []jobItem) (rest []jobItem, err error) {
	layout, err := q.Layout(ctx)
	if err != nil {
		return nil, err
	}
	if verb != JobReschedule && verb != JobRedrive {
		return items, nil
	}
	pipe := q.conn.Client(ctx).Pipeline()
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

// apply asks for each item what the job wants; one answer an item, by index.
func (q *Jobs) apply(ctx context.Context, spec *JobSpec, items []jobItem) []Answer {
	calls := make([]*call, len(items))
	var plain, rows []*call
	for i, item := range items {
		id, key := message.SplitMember(item.Member)
		calls[i] = newCall(id, key, item.Token, nil)
		calls[i].asked.life, calls[i].asked.when = item.Life, spec.when()
		if message.IsOutboxToken(item.Life) {
			rows = append(rows, calls[i])
		} else {
			plain = append(plain, calls[i])
		}
	}
	remembered := tombstone.Milliseconds()
	for _, list := range [][]*call{plain, rows} {
		if len(list) > 0 {
			v := spec.verb(remembered)
			v.durable = q.durable
			q.do(ctx, &v, list)
		}
		if spec.Verb == JobReschedule || spec.Verb == JobRedrive {
			remembered = (jobLife + tombstone).Milliseconds() // See JobRun.
		}
	}
	return answers(calls)
}

// when is the new due time.
func (s *JobSpec) when() When {
	switch {
	case s.By != 0:
		return When{FromOwn: true, Ms: s.By.Milliseconds()}
	case s.At.IsZero(): // now
		return When{Relative: true}
	default:
		return When{Ms: s.At.UnixMilli()}
	}
}

// verb is what is run, each time as a further run: it looks first what an earlier one
// has answered.
func (s *JobSpec) verb(rememberedMs int64) verb {
	v := cancelVerb
	v.each = func(args []any, a *asked) []any {
		return append(args, a.token, message.Member(a.id, a.key), "", a.life)
	}
	if s.Verb == JobReschedule || s.Verb == JobRedrive {
		v = rescheduleVerb
		v.each = func(args []any, a *asked) []any {
			return append(args, a.token, message.Member(a.id, a.key), a.when.String(), "", "", a.life)
		}
	}
	v.pinned = true // Others' calls have another head, so these may not travel with them.
	topics := ""    // A message that cannot be read was matched without its token: another may be there by now.
	if s.Filter.Topic != "" {
		topics = packTopics([]string{s.Filter.Topic})
	}
	onlyDead := scripts.Flag(s.Verb == JobRedrive || s.Verb == JobPurge)
	v.head = func(r *run) []any {
		return []any{r.layout.Epoch, r.notAfter, anyRun, rememberedMs, scripts.Flag(r.last), MaxBatchBytes, onlyDead, topics}
	}
	return v
}
