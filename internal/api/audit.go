package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// audited writes a change down: in the log, and in the queue's list of changes. Its answer is
// the error's code if there is one. What was refused as invalid was none; what was
// forbidden is reported by refused.
func (c *core) audited(ctx context.Context, queue string, made inspect.Change, err error) {
	caller := callOf(ctx)
	if isChange(&made, err) {
		c.write(ctx, queue, caller.Name, caller.request, made, (*inspect.Admin).Audit)
	}
}

// auditedCall is audited for a single message, by somebody who is no producer: producers'
// calls are the traffic. Without tokens, who schedules is taken for one.
func (c *core) auditedCall(ctx context.Context, queue string, made inspect.Change, err error) {
	caller := callOf(ctx)
	isTraffic := caller.Role == access.Producer || caller.IsAnyone() && made.Action == "schedule"
	if !isTraffic && isChange(&made, err) {
		c.write(ctx, queue, caller.Name, caller.request, made, (*inspect.Admin).AuditCall)
	}
}

// isChange completes the answer, and reports whether the call was one that the audit keeps.
func isChange(made *inspect.Change, err error) bool {
	if made.Answer = cmp.Or(made.Answer, "done"); err != nil {
		made.Answer = problem(err).Code
	}
	return made.Answer != operate.CodeInvalid && made.Answer != "forbidden"
}

// auditedRead writes down that a payload was shown: each of the first of a caller, and then
// how many they are.
func (c *core) auditedRead(ctx context.Context, queue string, made inspect.Change) {
	caller := callOf(ctx)
	n, isTold := c.auditCounts.note(auditKey{caller.Name, addressOf(caller.request), made.Action}, readsTold)
	if made.Answer = "shown"; n > readsTold {
		made.Answer += fmt.Sprintf(", %d within the hour", n)
	}
	if isTold {
		c.auditedCall(ctx, queue, made, nil)
	}
}

// auditRefusal counts a call that was refused for its caller or their rate, and writes the first
// ones down. who is empty if the caller is unknown.
func (c *core) auditRefusal(ctx context.Context, r *http.Request, who, action string, p *Problem) {
	switch p.Code {
	case "rate_limited":
		c.config.Refused(p.Code)
		return
	case "unauthorized", "forbidden", "read_only":
		c.config.Refused(p.Code)
	default:
		return
	}
	n, isTold := c.auditCounts.note(auditKey{who, addressOf(r), p.Code}, 1)
	if !isTold {
		return
	}
	made := inspect.Change{Action: action, Answer: p.Code}
	if n > 1 {
		made.Answer += fmt.Sprintf(", %d within the hour", n)
	}
	queues := []string{r.PathValue("queue")}
	if queuesOf(ctx)[queues[0]] == nil { // It is about none of them, or about all.
		queues = slices.Collect(maps.Keys(queuesOf(ctx)))
	}
	var writing sync.WaitGroup // A Redis that is away delays the answer once, not for each queue.
	for _, queue := range queues {
		writing.Go(func() { c.write(ctx, queue, who, r, made, (*inspect.Admin).AuditCall) })
	}
	writing.Wait()
}

func (c *core) write(ctx context.Context, queue, who string, r *http.Request, made inspect.Change, write func(*inspect.Admin, context.Context, *inspect.Change) error) {
	c.writeTo(ctx, queuesOf(ctx)[queue].Admin(), queue, who, r, made, write)
}

func (c *core) writeTo(ctx context.Context, admin *inspect.Admin, queue, who string, r *http.Request, made inspect.Change, write func(*inspect.Admin, context.Context, *inspect.Change) error) {
	made.Who, made.From, made.Via, made.Instance = who, addressOf(r), inspect.ViaAPI, c.config.Instance
	logger := c.config.Logger.With("event", "audit", "queue", queue, "who", who, "from", made.From,
		"request", r.Header.Get(requestID), "action", made.Action)
	logger.InfoContext(ctx, "called", "what", made.What, "key", made.Key, "topic", made.Topic, "answer", made.Answer)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), operate.AuditTimeout) // The change is made, whoever has gone.
	defer cancel()
	if err := write(admin, ctx, &made); err != nil {
		logger.WarnContext(ctx, "change is in this log only", "err", err)
	}
}

const (
	// tellFor is how long equal entries are counted before one is written again.
	tellFor = time.Hour
	// mostTold is how many different callers are counted; others are counted together.
	mostTold = 1000
	// readsTold is how many reads of payloads by a caller get an entry each.
	readsTold = 100
)

// auditKey is what equal entries share: the caller, the address and the result.
type auditKey struct{ who, from, what string }

// auditCounts count equal entries: the first ones are written, and then one each time that
// there are ten times as many. So no caller can fill the audit, and none is left out.
type auditCounts struct {
	mu     sync.Mutex
	counts map[auditKey]*auditCount
}

type auditCount struct {
	since time.Time
	// n is how many there were, and next is the count at which it is reported again.
	n, next int
}

// note counts an entry, and reports how many there are within the hour and whether to write one.
func (t *auditCounts) note(what auditKey, first int) (n int, isTold bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	count := t.counts[what]
	if count == nil && len(t.counts) >= mostTold {
		maps.DeleteFunc(t.counts, func(_ auditKey, c *auditCount) bool { return now.Sub(c.since) >= tellFor })
		if len(t.counts) >= mostTold {
			what = auditKey{what: what.what}
			count = t.counts[what]
		}
	}
	if count == nil || now.Sub(count.since) >= tellFor {
		count = &auditCount{since: now, next: first}
		if t.counts == nil {
			t.counts = map[auditKey]*auditCount{}
		}
		t.counts[what] = count
	}
	const ten = 10
	count.n++
	if count.n == count.next {
		count.next *= ten
		return count.n, true
	}
	return count.n, count.n <= first
}

// audits has the call that lists the changes.
type audits struct{ *core }

func (a *audits) register() {
	register(a.core, operation{
		id: "audit", method: http.MethodGet, path: "/audit", roles: viewers,
		summary: "List what operators changed and read by this API and by commands, and what was refused, the newest first",
	}, a.listAudit)
}

type auditInput struct {
	Queue  string `query:"queue" doc:"The queue's name; required if there are several."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most to list."`
	Cursor string `query:"cursor" doc:"The next_cursor of the previous page."`
}

type auditOutput struct {
	Body struct {
		Changes []operate.Change `json:"changes" nullable:"false"`
		Next    string           `json:"next_cursor" doc:"The cursor of the next page; empty on the last one."`
	}
}

func (a *audits) listAudit(ctx context.Context, in *auditInput) (*auditOutput, error) {
	caller := callOf(ctx)
	if in.Queue == "" {
		names := a.names(ctx)
		if len(names) != 1 {
			return nil, invalid("queue", "name a queue: "+strings.Join(names, ", "))
		}
		in.Queue = names[0]
	}
	if err := a.mayUse(ctx, caller.Caller, in.Queue); err != nil {
		return nil, err
	}
	if !caller.SeesAllTopics() {
		return nil, forbidden(caller.Name + " may see certain topics only, and the audit has all")
	}
	changes, err := queuesOf(ctx)[in.Queue].Admin().AuditLog(ctx, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &auditOutput{}
	out.Body.Changes = make([]operate.Change, len(changes))
	for i := range changes {
		out.Body.Changes[i] = operate.ViewChange(&changes[i])
	}
	if len(changes) == in.Limit {
		out.Body.Next = changes[len(changes)-1].Cursor
	}
	return out, nil
}
