package relay

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

const (
	// blockedPause is how long a blocked row rests, blockedLong the longest time until it is
	// tried again.
	blockedPause, blockedLong = time.Second, 10 * time.Second
	// mostBlocked is how many blocked rows of a queue are tracked. If there are more, a lane tries
	// the others each time it goes through the queue, and rests in between.
	mostBlocked = 1000
)

// inTheWay is why a row must wait for another message of its id, "" if it need not.
func inTheWay(answer store.Answer) string {
	if failureOf(answer.Err) != failureNone {
		return ""
	}
	switch answer.Code {
	case store.Waiting:
		return "another message of that id waits in Redis"
	case store.InFlight:
		return "another message of that id is being published"
	case store.Dead:
		return "another message of that id is in the dead letters: " + answer.Reason
	default:
		return ""
	}
}

// blockedRow is a row that waits for another message of its id to leave.
type blockedRow struct {
	table.Identity
	number int64
	why    string
}

// blockedRows are the rows that rest, so that they delay no others. It is safe for
// concurrent use.
type blockedRows struct {
	log *slog.Logger

	mu       sync.Mutex
	rows     map[string]map[int64]time.Time // by queue: until when
	loggedAt time.Time
}

func newBlocked(log *slog.Logger) *blockedRows {
	return &blockedRows{log: log, rows: map[string]map[int64]time.Time{}}
}

// add lets rows rest, and logs that once a minute. It reports whether there was no room
// for some.
func (b *blockedRows) add(ctx context.Context, now time.Time, queue string, rows []blockedRow) (crowded bool) {
	if len(rows) == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rows[queue] == nil {
		b.rows[queue] = map[int64]time.Time{}
	}
	for _, r := range rows {
		if _, known := b.rows[queue][r.number]; known || len(b.rows[queue]) < mostBlocked {
			b.rows[queue][r.number] = now.Add(blockedPause)
		} else {
			crowded = true
		}
	}
	if now.Sub(b.loggedAt) >= sayEvery {
		b.loggedAt = now
		b.log.WarnContext(ctx, "outbox row waits for another message of its id", "event", "outbox_blocked",
			"queue", queue, "id", rows[0].ID, "reason", rows[0].why, "rows", len(rows))
	}
	return crowded
}

// list returns the queue's rows that rest now. A row that was not tried again for long has
// been handled by another relay.
func (b *blockedRows) list(now time.Time, queue string) []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []int64
	for number, until := range b.rows[queue] {
		switch over := now.Sub(until); {
		case over < 0:
			list = append(list, number)
		case over > blockedLong:
			delete(b.rows[queue], number)
		}
	}
	return list
}

// remove records that rows no longer wait.
func (b *blockedRows) remove(queue string, rows table.Updates) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for number := range rows {
		delete(b.rows[queue], number)
	}
}

// forget forgets the rows of a queue.
func (b *blockedRows) forget(queue string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.rows, queue)
}

// count is how many rows are tracked.
func (b *blockedRows) count() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, rows := range b.rows {
		n += len(rows)
	}
	return n
}
