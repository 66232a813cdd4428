package api

import (
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
)

// auditTimeout bounds the writing down of a change.
const auditTimeout = time.Second

// change is what a caller has changed, or tried to.
type change struct {
	action, id, key, topic string
	// filter says which messages were meant, where it was not one.
	filter string
	// answer is a status, an error's code, or a tally.
	answer string
}

// audited writes a change down: in the log, and in the queue's list of changes. What was
// refused as invalid was none; what was forbidden is told by refused.
func (c *core) audited(ctx context.Context, queue string, made change) {
	if made.answer == "invalid" || made.answer == "forbidden" {
		return
	}
	caller := callOf(ctx)
	c.write(ctx, queue, caller.Name, caller.request, made, (*inspect.Admin).Audit)
}

// auditedCall is audited for a single message, by somebody who is no producer: producers'
// calls are the traffic. Without tokens, who schedules is taken for one.
func (c *core) auditedCall(ctx context.Context, queue string, made change) {
	caller := callOf(ctx)
	isTraffic := caller.Role == access.Producer || caller.IsAnyone() && made.action == "schedule"
	if isTraffic || made.answer == "invalid" || made.answer == "forbidden" {
		return
	}
	c.write(ctx, queue, caller.Name, caller.request, made, (*inspect.Admin).AuditCall)
}

// auditedRead writes down that a payload was shown: each of the first of a caller, and then
// how many they are.
func (c *core) auditedRead(ctx context.Context, queue string, made change) {
	caller := callOf(ctx)
	n, isTold := c.told.note(told{caller.Name, addressOf(caller.request), made.action}, readsTold)
	if made.answer = "shown"; n > readsTold {
		made.answer += fmt.Sprintf(", %d within the hour", n)
	}
	if isTold {
		c.auditedCall(ctx, queue, made)
	}
}

// refused counts a call that was refused for who made it or how often, and writes the first
// ones down. who is empty where nobody knows.
func (c *core) refused(ctx context.Context, r *http.Request, who, action string, p *Problem) {
	switch p.Code {
	case "rate_limited":
		c.config.Refused(p.Code)
		return
	case "unauthorized", "forbidden", "read_only":
		c.config.Refused(p.Code)
	default:
		return
	}
	n, isTold := c.told.note(told{who, addressOf(r), p.Code}, 1)
	if !isTold {
		return
	}
	made := change{action: action, answer: p.Code}
	if n > 1 {
		made.answer += fmt.Sprintf(", %d within the hour", n)
	}
	queues := []string{r.PathValue("queue")}
	if c.config.Queues[queues[0]] == nil { // It is about none of them, or about all.
		queues = slices.Collect(maps.Keys(c.config.Queues))
	}
	var writing sync.WaitGroup // A Redis that is away delays the answer once, not for each queue.
	for _, queue := range queues {
		writing.Go(func() { c.write(ctx, queue, who, r, made, (*inspect.Admin).AuditCall) })
	}
	writing.Wait()
}

func (c *core) write(ctx context.Context, queue, who string, r *http.Request, made change, write func(*inspect.Admin, context.Context, *inspect.Change) error) {
	what, from := made.id, addressOf(r)
	if made.filter != "" {
		what = made.filter
	}
	logger := c.config.Logger.With("event", "audit", "queue", queue, "who", who, "from", from,
		"request", r.Header.Get(requestID), "action", made.action)
	logger.InfoContext(ctx, "called", "what", what, "key", made.key, "topic", made.topic, "answer", made.answer)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout) // The change is made, whoever has gone.
	defer cancel()
	if err := write(inspect.NewAdmin(c.config.Queues[queue].Store), ctx, &inspect.Change{
		Who: who, From: from, Via: inspect.ViaAPI, Instance: c.config.Instance, Action: made.action,
		What: what, Key: made.key, Topic: made.topic, Answer: made.answer,
	}); err != nil {
		logger.WarnContext(ctx, "change is in this log only", "err", err)
	}
}

const (
	// tellFor is how long what is the same is counted before it is told anew.
	tellFor = time.Hour
	// mostTold is how many different callers are counted; others are counted together.
	mostTold = 1000
	// readsTold is how many payloads that a caller reads are told one by one.
	readsTold = 100
)

// told is what may be much of the same: who called from where, and what came of it.
type told struct{ who, from, what string }

// tellings count it: it is told for the first times, and then each time that there is ten
// times as much. So nobody can fill the audit with it, and none of it is left out.
type tellings struct {
	mu     sync.Mutex
	counts map[told]*telling
}

type telling struct {
	since time.Time
	// n is how many there were, and next how many there are when it is told again.
	n, next int
}

// note counts one, and reports how many there are within the hour and whether that is told.
func (t *tellings) note(what told, first int) (n int, isTold bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	count := t.counts[what]
	if count == nil && len(t.counts) >= mostTold {
		maps.DeleteFunc(t.counts, func(_ told, c *telling) bool { return now.Sub(c.since) >= tellFor })
		if len(t.counts) >= mostTold {
			what = told{what: what.what}
			count = t.counts[what]
		}
	}
	if count == nil || now.Sub(count.since) >= tellFor {
		count = &telling{since: now, next: first}
		if t.counts == nil {
			t.counts = map[told]*telling{}
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

// FilterText is a filter as the audit has it.
func FilterText(f *inspect.Filter) string { return text(viewFilter(f)) }

// tally counts answers.
type tally map[string]int

// String is the tally in the order of the names: "created 3, duplicate 1".
func (t tally) String() string {
	parts := make([]string, 0, len(t))
	for _, answer := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, fmt.Sprintf("%s %d", answer, t[answer]))
	}
	return strings.Join(parts, ", ")
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
	Queue  string `query:"queue" doc:"The queue's name; needed where there are several."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most to list."`
	Cursor string `query:"cursor" doc:"The next_cursor of the page before."`
}

// Change is one change that somebody has made, or one call that was refused.
type Change struct {
	At       string `json:"at" format:"date-time"`
	Who      string `json:"who" doc:"The name of the token, local or remote without tokens, empty where nobody knows; of a command, the user that ran it."`
	From     string `json:"from" doc:"The caller's address; of a command, the host."`
	Via      string `json:"via" enum:"api,command" doc:"How it came."`
	Instance string `json:"instance" doc:"The bridge that was called; empty for a command."`
	Action   string `json:"action"`
	What     string `json:"what" doc:"The message's id, or a filter."`
	Key      string `json:"key"`
	Topic    string `json:"topic"`
	Answer   string `json:"answer" doc:"A status, an error's code, or a tally."`
}

type auditOutput struct {
	Body struct {
		Changes []Change `json:"changes" nullable:"false"`
		Next    string   `json:"next_cursor" doc:"The cursor of the next page; empty where there is none."`
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
	if err := a.mayUse(caller.Caller, in.Queue); err != nil {
		return nil, err
	}
	if !caller.SeesAllTopics() {
		return nil, forbidden(caller.Name + " may see certain topics only, and the audit has all")
	}
	changes, err := inspect.NewAdmin(a.config.Queues[in.Queue].Store).AuditLog(ctx, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &auditOutput{}
	out.Body.Changes = make([]Change, len(changes))
	for i, c := range changes {
		out.Body.Changes[i] = Change{
			At: stamp(c.At), Who: c.Who, From: c.From, Via: c.Via, Instance: c.Instance,
			Action: c.Action, What: c.What, Key: c.Key, Topic: c.Topic, Answer: c.Answer,
		}
	}
	if len(changes) == in.Limit {
		out.Body.Next = changes[len(changes)-1].Cursor
	}
	return out, nil
}
