package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// roomsKept is for how long [Admin.Rooms] returns what was told.
const roomsKept = time.Minute

// Room is how much is taken of what may be, in bytes.
type Room struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit"`
	// FullAt is when all is taken, if it grows on as in the last minutes; zero where that
	// is not to be expected.
	FullAt time.Time `json:"full_at,omitzero"`
}

// IsFull reports whether next to nothing is left: what is refused is not measured, so a
// queue stays a little below its budget.
func (r *Room) IsFull() bool {
	const nearly = 0.99
	return float64(r.Used) >= nearly*float64(r.Limit)
}

// Rooms are those of a queue; nil where there is no limit, or nothing is known yet.
type Rooms struct {
	// Budget is the queue's own, Redis' that of its maxmemory.
	Budget *Room `json:"budget,omitempty"`
	Redis  *Room `json:"redis,omitempty"`
}

// toldRooms is how they stand in Redis, in the meta of the first shard.
type toldRooms struct {
	At time.Time `json:"at"` // by Redis' clock
	Rooms
}

// TellRooms has [Admin.Rooms] return these for a minute: when something will be full, only a
// bridge knows, which looks for minutes. A full Redis takes it, too.
func (a *Admin) TellRooms(ctx context.Context, rooms Rooms) error {
	return a.queue.Repeat(ctx, func(*store.Layout) error {
		text, err := json.Marshal(toldRooms{a.queue.Now(), rooms})
		if err != nil {
			return fmt.Errorf("tell rooms: %w", err)
		}
		if _, err := a.queue.Run(ctx, scripts.Budget, []string{a.queue.Keys().Shard(0).Meta}, "room", string(text)); err != nil {
			return fmt.Errorf("tell rooms: %w", err)
		}
		return nil
	})
}

// Rooms are what a bridge has told within the last minute; none where nobody has.
func (a *Admin) Rooms(ctx context.Context) (rooms Rooms, err error) {
	err = a.queue.Repeat(ctx, func(*store.Layout) error {
		text, err := a.queue.Redis(ctx).HGet(ctx, a.queue.Keys().Shard(0).Meta, "room").Bytes()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read rooms: %w", err)
		}
		var told toldRooms
		if json.Unmarshal(text, &told) == nil && a.queue.Now().Sub(told.At) < roomsKept { // Else it is of another version.
			rooms = told.Rooms
		}
		return nil
	})
	return rooms, err
}
