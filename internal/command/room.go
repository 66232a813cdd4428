package command

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// fullest is how much is taken of what has the least room: of the queue's budget, or of Redis'
// maxmemory.
func fullest(rooms inspect.Rooms) string {
	most := -1.0
	for _, r := range []*inspect.Room{rooms.Budget, rooms.Redis} {
		if r != nil {
			most = max(most, float64(r.Used)/float64(r.Limit))
		}
	}
	if most < 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", math.Floor(100*most))
}

// room says how much is taken, and when all will be, to the minute.
func room(r *inspect.Room) string {
	if r == nil {
		return "-"
	}
	text := fmt.Sprintf("%s of %s", size(float64(r.Used)), size(float64(r.Limit)))
	switch {
	case r.IsFull():
		return text + ", full"
	case !r.FullAt.IsZero():
		return text + ", full at " + r.FullAt.UTC().Format("2006-01-02T15:04Z")
	}
	return text
}

// describeRooms says what is full, or will be.
func describeRooms(w io.Writer, looks []look) error {
	now := time.Now()
	describe := func(what string, r *inspect.Room) error {
		var err error
		switch {
		case r == nil:
		case r.IsFull():
			_, err = fmt.Fprintf(w, "\n%s is used up: %s\n", what, room(r))
		case !r.FullAt.IsZero():
			_, err = fmt.Fprintf(w, "\n%s will be used up: %s%s\n", what, room(r), relative(r.FullAt, now))
		}
		return err
	}
	var redis *inspect.Room // All queues are in the same.
	for i := range looks {
		l := &looks[i]
		if l.rooms.Redis != nil {
			redis = l.rooms.Redis
		}
		if err := describe("queue "+l.Queue.Name+": its budget", l.rooms.Budget); err != nil {
			return err
		}
	}
	return describe("redis: its maxmemory", redis)
}
