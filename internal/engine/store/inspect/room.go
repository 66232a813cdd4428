package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// roomsKept is how long [Admin.Rooms] returns what [Admin.TellRooms] wrote.
const roomsKept = time.Minute

// Room is how much of a limit is used, in bytes.
type Room struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit"`
	// FullAt is when the limit is reached, if use keeps growing as in the last minutes;
	// zero if that is not to be expected.
	FullAt time.Time `json:"full_at,omitzero"`
}

// IsFull reports whether next to nothing is left. A refused message does not count, so
// a queue stays a little below its budget.
func (r *Room) IsFull() bool {
	const nearly = 0.99
	return float64(r.Used) >= nearly*float64(r.Limit)
}

// Rooms are the limits of a queue; nil if there is no limit, or nothing is known yet.
type Rooms struct {
	// Budget is the queue's own limit, Redis that of its maxmemory.
	Budget *Room `json:"budget,omitempty"`
	Redis  *Room `json:"redis,omitempty"`
}

// roomsRecord is how Redis stores Rooms, in the meta of the first shard.
type roomsRecord struct {
	At time.Time `json:"at"` // by Redis' clock
	Rooms
}

// TellRooms stores what [Admin.Rooms] returns for the next minute. Only a bridge, which has
// watched for minutes, knows when a limit will be reached. A full Redis accepts the write.
func (a *Admin) TellRooms(ctx context.Context, rooms Rooms) error {
	return a.queue.Repeat(ctx, func(*store.Layout) error {
		text, err := json.Marshal(roomsRecord{a.queue.Now(), rooms})
		if err != nil {
			return fmt.Errorf("tell rooms: %w", err)
		}
		if _, err := a.queue.Run(ctx, scripts.Budget, []string{a.queue.Keys().Shard(0).Meta}, "room", string(text)); err != nil {
			return fmt.Errorf("tell rooms: %w", err)
		}
		return nil
	})
}

// Rooms returns what a bridge has written within the last minute, if any has.
func (a *Admin) Rooms(ctx context.Context) (rooms Rooms, err error) {
	err = a.queue.Repeat(ctx, func(*store.Layout) error {
		text, err := a.queue.Redis(ctx).HGet(ctx, a.queue.Keys().Shard(0).Meta, "room").Bytes()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read rooms: %w", err)
		}
		var told roomsRecord
		if json.Unmarshal(text, &told) == nil && a.queue.Now().Sub(told.At) < roomsKept { // An error means that another version wrote it.
			rooms = told.Rooms
		}
		return nil
	})
	return rooms, err
}

// messageOverhead is about how many bytes a message takes in Redis besides its stored
// text: its id in two keys, and their tables.
const messageOverhead = 270

// Limit measures the queue like [Admin.Used], and makes the scripts refuse producers beyond
// a budget in bytes: each shard may take an even part of what is left. 0 means no limit.
// Call it about once a second; until the next call, the values in the shards' meta are in
// force. It returns how many bytes the queue takes.
func (a *Admin) Limit(ctx context.Context, budget int64) (used int64, err error) {
	err = a.queue.Repeat(ctx, func(l *store.Layout) error {
		shards := l.Keys()[:l.InUse()]
		m, err := a.measure(ctx, shards)
		if err != nil {
			return err
		}
		used = m.used
		room := max(0, budget-used) / m.each / int64(len(shards))
		for i, k := range shards {
			text := ""
			if budget > 0 {
				text = strconv.FormatInt(m.live[i]+room, 10) + " messages"
			}
			if _, err := a.queue.Run(ctx, scripts.Budget, []string{k.Meta}, "budget", text); err != nil {
				return fmt.Errorf("limit shard %d: %w", i, err)
			}
		}
		return nil
	})
	return used, err
}

// Used returns about how many bytes the queue takes, dead letters included: an estimate
// from a sample of its messages.
func (a *Admin) Used(ctx context.Context) (int64, error) {
	m, err := store.Repeat(ctx, a.queue, func(l *store.Layout) (measurement, error) { return a.measure(ctx, l.Keys()[:l.InUse()]) })
	return m.used, err
}

// UsedBy is what [Admin.Used] counts for so many messages whose stored texts have that many bytes on average.
func UsedBy(messages int64, mean float64) int64 { return messages * takenBy(mean) }

// takenBy is about how many bytes a message takes.
func takenBy(mean float64) int64 { return int64(mean) + messageOverhead }

// measurement is how much memory a queue takes.
type measurement struct {
	live       []int64 // messages of each shard without the dead ones
	each, used int64   // bytes: of a message on average, and of all
}

func (a *Admin) measure(ctx context.Context, shards []keys.Shard) (m measurement, err error) {
	type lengths struct{ live, dead *redis.IntCmd }
	counts, err := ask(ctx, a.queue, shards, func(pipe redis.Pipeliner, k keys.Shard) lengths {
		return lengths{pipe.HLen(ctx, k.Msg), pipe.ZCard(ctx, k.Dead)}
	})
	if err != nil {
		return m, fmt.Errorf("count messages: %w", err)
	}
	var all int64
	for _, c := range counts {
		m.live = append(m.live, c.live.Val())
		all += c.live.Val() + c.dead.Val()
	}
	size, err := a.sampleSizes(ctx, shards, m.live)
	m.each, m.used = takenBy(size.Mean), UsedBy(all, size.Mean)
	return m, err
}
