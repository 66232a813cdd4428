package inspect

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

const (
	// auditKept is about how many changes a queue remembers, and separately how many calls.
	auditKept = 10_000
	// MaxAudit limits how many changes one call of [Admin.AuditLog] returns.
	MaxAudit = 1000
)

// How a change was made. Producers' own calls, in whatever language, are traffic and not
// in the audit.
const (
	ViaAPI     = "api"
	ViaCommand = "command"
)

// auditCursor matches the name of an entry of the stream.
var auditCursor = regexp.MustCompile(`^([0-9]{1,19}-[0-9]{1,19})(c?)$`)

// ofCalls ends the cursor of an entry of the calls.
const ofCalls = "c"

// Change is an audit entry: one change of a queue, without payloads.
type Change struct {
	// Cursor names the entry, for [Admin.AuditLog]; At is when it was written, by Redis' clock.
	Cursor string
	At     time.Time
	// Who is the caller's name, From its address or host, Via how the change came,
	// Instance the bridge that was called; a command calls none.
	Who, From, Via, Instance string
	// Action is the operation; What names its messages: an id, or a filter.
	Action, What, Key, Topic string
	// Answer is the result: a status, an error's code, or a tally.
	Answer string
}

// Audit records a change. The queue keeps the last 10,000, or a few more. A full
// Redis refuses it.
func (a *Admin) Audit(ctx context.Context, c *Change) error {
	return a.writeAudit(ctx, a.queue.Keys().Audit(), c)
}

// AuditCall is Audit for frequent entries: changes and reads of single messages, and
// refusals. They have a limit of their own, so that they do not displace other changes.
func (a *Admin) AuditCall(ctx context.Context, c *Change) error {
	return a.writeAudit(ctx, a.queue.Keys().AuditCalls(), c)
}

func (a *Admin) writeAudit(ctx context.Context, key string, c *Change) error {
	command := scripts.NewCommand(ctx, "xadd", key, "maxlen", "~", auditKept, "*",
		"who", c.Who, "from", c.From, "via", c.Via, "instance", c.Instance, "action", c.Action,
		"what", c.What, "key", c.Key, "topic", c.Topic, "answer", c.Answer)
	if err := a.queue.Redis(ctx).Process(ctx, command); err != nil {
		return fmt.Errorf("write audit: %w", err)
	}
	return nil
}

// AuditLog returns up to limit changes and calls, newest first, that are older than the one
// of the cursor; an empty cursor starts at the newest. If it returns limit of them, there
// may be more.
func (a *Admin) AuditLog(ctx context.Context, cursor string, limit int) ([]Change, error) {
	limit = min(limit, MaxAudit)
	newestChange, newestCall := "+", "+"
	if cursor != "" {
		parts := auditCursor.FindStringSubmatch(cursor)
		if parts == nil {
			return nil, fmt.Errorf("%w: cursor %q %w", ErrListRequest, cursor, errPlace)
		}
		newestChange, newestCall = "("+parts[1], parts[1] // A call sorts after a change with the same time.
		if parts[2] == ofCalls {
			newestCall = newestChange
		}
	}
	changes, err := a.readAudit(ctx, a.queue.Keys().Audit(), newestChange, limit, "")
	if err != nil {
		return nil, err
	}
	calls, err := a.readAudit(ctx, a.queue.Keys().AuditCalls(), newestCall, limit, ofCalls)
	if err != nil && !redis.IsPermissionError(err) { // An ACL from before there were calls does not include them.
		return nil, err
	}
	all := append(changes, calls...)
	slices.SortStableFunc(all, func(a, b Change) int { return compareStreamIDs(b.Cursor, a.Cursor) })
	return all[:min(len(all), limit)], nil
}

// compareStreamIDs compares the names of two entries: milliseconds, then a number.
func compareStreamIDs(a, b string) int {
	at := func(id string) (ms, number uint64) {
		_, _ = fmt.Sscanf(id, "%d-%d", &ms, &number) // Redis made it, so it has that form.
		return ms, number
	}
	ms1, number1 := at(a)
	ms2, number2 := at(b)
	return cmp.Or(cmp.Compare(ms1, ms2), cmp.Compare(number1, number2))
}

func (a *Admin) readAudit(ctx context.Context, key, newest string, limit int, mark string) ([]Change, error) {
	entries, err := a.queue.Redis(ctx).XRevRangeN(ctx, key, newest, "-", int64(limit)).Result()
	if err != nil {
		return nil, fmt.Errorf("read audit: %w", store.Unavailable(err))
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
			Cursor: entry.ID + mark, At: time.UnixMilli(ms),
			Who: text("who"), From: text("from"), Instance: text("instance"), Action: text("action"),
			Via:  cmp.Or(text("via"), ViaAPI), // Earlier versions recorded only changes by the API.
			What: text("what"), Key: text("key"), Topic: text("topic"), Answer: text("answer"),
		}
	}
	return changes, nil
}
