package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
	"github.com/delaybridge/delaybridge/internal/engine/store/sound"
)

// look checks some names of a key.
type look func(context.Context, []string) error

// scan reads a key to its end, some names at a time. It returns every name that is there
// from its beginning to its end, some of them twice.
func (w *walk) scan(ctx context.Context, command, key string, look look) error {
	cursor, count := "0", 1
	for {
		var names []string
		err := w.queue.Repeat(ctx, func(*store.Layout) error {
			cmd, err := w.queue.Run(ctx, scripts.Scan, []string{key}, command, cursor, count)
			if err != nil {
				return err
			}
			r := scripts.NewReply(cmd)
			next, bytes, list := r.Text(0), r.Int(1), r.List(2)
			names = list.Texts()
			if err := errors.Join(r.Err, list.Err); err != nil {
				return err
			}
			cursor, count = next, scripts.NextPage(count, bytes, pageBytes, pageSize) // It reads the values, too.
			return nil
		})
		if err != nil {
			return err
		}
		for page := range slices.Chunk(names, pageSize) {
			if err := look(ctx, page); err != nil {
				return err
			}
		}
		if cursor == "0" {
			return nil
		}
	}
}

// counted counts the checked names towards the total.
func (w *walk) counted(look look) look {
	return func(ctx context.Context, names []string) error {
		if err := look(ctx, names); err != nil {
			return err
		}
		return w.step(ctx, len(names))
	}
}

// unless checks the names that are not in a sorted set.
func (w *walk) unless(key string) look {
	return func(ctx context.Context, members []string) error {
		there, err := w.scored(ctx, key, members)
		if err != nil {
			return err
		}
		return w.look(ctx, slices.DeleteFunc(members, func(member string) bool { return there[member] }))
	}
}

// scored returns those of the names that a sorted set has.
func (w *walk) scored(ctx context.Context, key string, names []string) (map[string]bool, error) {
	return store.Repeat(ctx, w.queue, func(*store.Layout) (map[string]bool, error) {
		cmds, err := w.queue.Redis(ctx).Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, name := range names {
				pipe.ZScore(ctx, key, name)
			}
			return nil
		})
		there := map[string]bool{}
		for i, cmd := range cmds {
			there[names[i]] = cmd.Err() == nil
		}
		return there, missing(err)
	})
}

// hashed returns those of the names that a hash of short values has.
func (w *walk) hashed(ctx context.Context, key string, names []string) (map[string]bool, error) {
	return store.Repeat(ctx, w.queue, func(*store.Layout) (map[string]bool, error) {
		values, err := w.queue.Redis(ctx).HMGet(ctx, key, names...).Result()
		there := map[string]bool{}
		for i, value := range values {
			there[names[i]] = value != nil
		}
		return there, err
	})
}

// missing returns the error of a pipeline, and nil if it only says that something does not exist.
func missing(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// look checks messages, and judges suspects again.
func (w *walk) look(ctx context.Context, members []string) error {
	return w.lookIn(ctx, members, false)
}

// lookIn is look. It searches the claims for claimed messages in any case, and for others
// only if they are nowhere else.
func (w *walk) lookIn(ctx context.Context, members []string, claimed bool) error {
	for part := range slices.Chunk(members, pageSize) {
		messages, err := w.read(ctx, part)
		if err != nil {
			return err
		}
		if claimed || slices.ContainsFunc(messages, func(m sound.Message) bool { return m.Waits != (m.Stored != nil) }) {
			if err := w.countClaims(ctx, messages); err != nil {
				return err
			}
		}
		for i := range messages {
			if err := w.check(ctx, &messages[i]); err != nil {
				return err
			}
		}
		if err := w.checkTags(ctx, messages); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) check(ctx context.Context, m *sound.Message) error {
	suspects := m.Check()
	isThere := m.Waits || m.Stored != nil || m.Dead || m.Letter != nil
	if isThere && !slices.Contains(w.layout.Homes(message.SplitMember(m.Member)), w.shard) { // No call looks for it here.
		suspects = append(suspects, sound.Finding{Kind: sound.WrongHome, Name: m.Member})
	}
	return w.judgeAll(ctx, suspects)
}

// read reads the messages in all keys but the claims. It is not atomic; it reads due
// first, so that a message that moves on as usual is seen somewhere.
func (w *walk) read(ctx context.Context, members []string) ([]sound.Message, error) {
	messages := make([]sound.Message, len(members))
	err := w.queue.Repeat(ctx, func(*store.Layout) error {
		pipe := w.queue.Redis(ctx).Pipeline()
		var takes []func()
		for i, member := range members {
			due, dead := pipe.ZScore(ctx, w.keys.Due, member), pipe.ZScore(ctx, w.keys.Dead, member)
			takes = append(takes, func() {
				messages[i] = sound.Message{Member: member, Waits: due.Err() == nil, Dead: dead.Err() == nil}
			})
		}
		for from := 0; from < len(members); from += store.BodiesAtOnce {
			names := members[from:min(from+store.BodiesAtOnce, len(members))]
			stored, attempts := pipe.HMGet(ctx, w.keys.Msg, names...), pipe.HMGet(ctx, w.keys.Attempts, names...)
			letters := pipe.HMGet(ctx, w.keys.DeadMsg, names...)
			takes = append(takes, func() {
				for n := range names {
					m := &messages[from+n]
					m.Stored, m.Attempts, m.Letter = textAt(stored, n), textAt(attempts, n), textAt(letters, n)
				}
			})
		}
		if _, err := pipe.Exec(ctx); missing(err) != nil {
			return err
		}
		for _, take := range takes {
			take()
		}
		return nil
	})
	return messages, err
}

func textAt(cmd *redis.SliceCmd, i int) *string {
	if values := cmd.Val(); i < len(values) {
		if s, ok := values[i].(string); ok {
			return &s
		}
	}
	return nil
}

// countClaims reads in how many claims the messages are.
func (w *walk) countClaims(ctx context.Context, messages []sound.Message) error {
	claims, err := w.readClaims(ctx)
	if err != nil {
		return err
	}
	counts := map[string]int{}
	for _, packed := range claims {
		_ = scripts.EachPacked(packed, func(_ int64, member string) { counts[member]++ }) // The walk over the claims reports errors.
	}
	for i := range messages {
		messages[i].Claims = counts[messages[i].Member]
	}
	return nil
}

// readClaims reads all claims, whose number the windows bound.
func (w *walk) readClaims(ctx context.Context) (map[string]string, error) {
	return store.Repeat(ctx, w.queue, func(*store.Layout) (map[string]string, error) {
		return w.queue.Redis(ctx).HGetAll(ctx, w.keys.Claims).Result()
	})
}

// claims compares claims with deadlines, and checks their messages.
func (w *walk) claims(ctx context.Context) error {
	claims, err := w.readClaims(ctx)
	if err != nil {
		return err
	}
	tokens, err := store.Repeat(ctx, w.queue, func(*store.Layout) ([]string, error) {
		return w.queue.Redis(ctx).ZRange(ctx, w.keys.Deadlines, 0, -1).Result()
	})
	if err != nil {
		return err
	}
	deadlines := map[string]bool{}
	for _, token := range tokens {
		deadlines[token] = true
	}
	if err := w.judgeAll(ctx, sound.Unpaired(claims, sound.NoDeadline, deadlines, sound.NoClaim)); err != nil {
		return err
	}
	var members []string
	for token, packed := range claims {
		err := scripts.EachPacked(packed, func(_ int64, member string) { members = append(members, member) })
		if err == nil {
			continue
		}
		if err := w.breach(sound.Finding{Kind: sound.Unreadable, Name: token, Detail: err.Error()}, false); err != nil {
			return err
		}
	}
	slices.Sort(members)
	return w.lookIn(ctx, slices.Compact(members), true)
}

// lacking finds names that another key lacks.
func (w *walk) lacking(kind sound.Kind, has func(context.Context, string, []string) (map[string]bool, error), key string) look {
	return func(ctx context.Context, names []string) error {
		there, err := has(ctx, key, names)
		if err != nil {
			return err
		}
		for _, name := range names {
			if there[name] {
				continue
			}
			if err := w.judge(ctx, sound.Finding{Kind: kind, Name: name}, ""); err != nil {
				return err
			}
		}
		return nil
	}
}

// checkTags checks that the messages' tags have their entries.
func (w *walk) checkTags(ctx context.Context, messages []sound.Message) error {
	owners := map[string]*sound.Message{}
	for i := range messages {
		for _, tag := range messages[i].Tags() {
			owners[sound.TagEntry(tag, messages[i].Member)] = &messages[i]
		}
	}
	if len(owners) == 0 {
		return nil
	}
	entries := slices.Sorted(maps.Keys(owners))
	there, err := w.scored(ctx, w.keys.Tags, entries)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if there[entry] {
			continue
		}
		if err := w.judgeTag(ctx, sound.NoTag, entry, owners[entry]); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) judgeTag(ctx context.Context, kind sound.Kind, entry string, m *sound.Message) error {
	tag, _, _ := strings.Cut(entry, "\x00")
	return w.judge(ctx, sound.Finding{Kind: kind, Name: m.Member, Tag: tag}, m.Life())
}

// tags finds entries of messages that do not have the tag.
func (w *walk) tags(ctx context.Context, entries []string) error {
	members := make([]string, len(entries))
	for i, entry := range entries {
		_, members[i], _ = strings.Cut(entry, "\x00")
	}
	messages, err := w.read(ctx, members)
	if err != nil {
		return err
	}
	for i, entry := range entries {
		tag, _, _ := strings.Cut(entry, "\x00")
		if slices.Contains(messages[i].Tags(), tag) {
			continue
		}
		if err := w.judgeTag(ctx, sound.StrayTag, entry, &messages[i]); err != nil {
			return err
		}
	}
	return nil
}

// endsAtOnce limits how many ends of a history one script removes.
const endsAtOnce = 500

// history checks the ends that a shard remembers, even if its queue no longer keeps a history.
func (w *walk) history(ctx context.Context) error {
	if err := w.trim(ctx); err != nil {
		return err
	}
	ended, ends := w.keys.History()
	if err := w.scan(ctx, "ZSCAN", ended, w.counted(w.lacking(sound.NoEnd, w.hashed, ends))); err != nil {
		return err
	}
	return w.scan(ctx, "HSCAN", ends, w.counted(w.lacking(sound.UnlistedEnd, w.scored, ended)))
}

// trim finds ends beyond the queue's limit, and removes the oldest, some at a time.
func (w *walk) trim(ctx context.Context) error {
	there, err := w.countEnds(ctx, w.shard)
	if err != nil {
		return err
	}
	for trimmed := false; ; trimmed = true {
		layout, err := w.queue.LoadLayout(ctx) // The limit may have been raised meanwhile.
		if err != nil {
			return err
		}
		most := layout.EndsOfShard()
		answer, err := w.mend(ctx, sound.Finding{Kind: sound.ManyEnds}, "", most)
		switch {
		case err != nil:
			return err
		case answer == mendMended:
			if err := w.step(ctx, endsAtOnce); err != nil {
				return err
			}
			continue
		case answer == mendSound && !trimmed:
			return nil
		}
		detail := fmt.Sprintf("%d are remembered, %d may be", there, most)
		return w.breach(sound.Finding{Kind: sound.ManyEnds, Detail: detail}, trimmed)
	}
}

// countEnds counts the ends that a shard remembers.
func (v *verification) countEnds(ctx context.Context, shard int) (int64, error) {
	ended, _ := v.layout.Keys()[shard].History()
	return store.Repeat(ctx, v.queue, func(*store.Layout) (int64, error) { return v.queue.Redis(ctx).ZCard(ctx, ended).Result() })
}
