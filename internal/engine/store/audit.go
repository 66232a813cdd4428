package store

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

const (
	// auditKept is about how many changes a queue remembers.
	auditKept = 10_000
	// MaxAudit is how many changes one call of [Admin.AuditLog] returns at the most.
	MaxAudit = 1000
)

// How a change came. Producers' own calls are not in the audit: they are the traffic.
const (
	ViaAPI     = "api"
	ViaCommand = "command"
)

// auditCursor is what names an entry of the stream.
var auditCursor = regexp.MustCompile(`^[0-9]{1,19}-[0-9]{1,19}$`)

// Change is one change of a queue by somebody: for the record, so without payloads.
type Change struct {
	// Cursor names the entry, for [Admin.AuditLog]; At is when it was written, by Redis' clock.
	Cursor string
	At     time.Time
	// Who is the caller's name, From its address or host, Via how the change came,
	// Instance the bridge that was called; a command calls none.
	Who, From, Via, Instance string
	// Action is what was asked; What is of which messages: an id, or a filter.
	Action, What, Key, Topic string
	// Answer is what came of it: a status, an error's code, or a tally.
	Answer string
}

// Audit writes a change down. The queue keeps the last 10,000, or a few more. A full
// Redis refuses it.
func (q *Admin) Audit(ctx context.Context, c *Change) error {
	command := scripts.NewCommand(ctx, "xadd", q.keys.Audit(), "maxlen", "~", auditKept, "*",
		"who", c.Who, "from", c.From, "via", c.Via, "instance", c.Instance, "action", c.Action,
		"what", c.What, "key", c.Key, "topic", c.Topic, "answer", c.Answer)
	if err := q.conn.Client(ctx).Process(ctx, command); err != nil {
		return fmt.Errorf("write audit: %w", err)
	}
	return nil
}

// AuditLog returns up to limit changes, the newest first, that are older than the
// one of that cursor; from the newest on where it is empty. There are more where
// limit of them are returned.
func (q *Admin) AuditLog(ctx context.Context, cursor string, limit int) ([]Change, error) {
	newest := "+"
	if cursor != "" {
		if !auditCursor.MatchString(cursor) {
			return nil, fmt.Errorf("%w: cursor %q %w", ErrListRequest, cursor, errPlace)
		}
		newest = "(" + cursor
	}
	entries, err := q.conn.Client(ctx).XRevRangeN(ctx, q.keys.Audit(), newest, "-", int64(min(limit, MaxAudit))).Result()
	if err != nil {
		return nil, fmt.Errorf("read audit: %w", wrapUnavailable(err))
	}
	changes := make([]Change, len(entries))
	for i, entry := range entries {
		text := func(name string) string {
			value, _ := entry.Values[name].(string)
			return value
		}
		var ms int64
		if _, err := fmt.Sscanf(entry.ID, "%d-", &ms); err != nil {
			return nil, fmt.Errorf("%w: audit entry %q", scripts.ErrReply, entry.ID)
		}
		changes[i] = Change{
			Cursor: entry.ID, At: time.UnixMilli(ms),
			Who: text("who"), From: text("from"), Instance: text("instance"), Action: text("action"),
			Via:  cmp.Or(text("via"), ViaAPI), // Earlier versions wrote down what the API did, and nothing else.
			What: text("what"), Key: text("key"), Topic: text("topic"), Answer: text("answer"),
		}
	}
	return changes, nil
}
