package api

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
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
// refused as invalid was none.
func (c *core) audited(ctx context.Context, queue string, made change) {
	if made.answer == "invalid" || made.answer == "forbidden" {
		return
	}
	caller := callOf(ctx)
	from, _, err := net.SplitHostPort(caller.request.RemoteAddr)
	if err != nil {
		from = caller.request.RemoteAddr
	}
	what := made.id
	if made.filter != "" {
		what = made.filter
	}
	logger := c.config.Logger.With("event", "audit", "queue", queue, "who", caller.Name, "from", from, "action", made.action)
	logger.InfoContext(ctx, "changed", "what", what, "key", made.key, "topic", made.topic, "answer", made.answer)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout) // The change is made, whoever has gone.
	defer cancel()
	if err := c.config.Queues[queue].Store.Admin().Audit(ctx, &store.Change{
		Who: caller.Name, From: from, Via: store.ViaAPI, Instance: c.config.Instance, Action: made.action,
		What: what, Key: made.key, Topic: made.topic, Answer: made.answer,
	}); err != nil {
		logger.WarnContext(ctx, "change is in this log only", "err", err)
	}
}

// FilterText is a filter as the audit has it.
func FilterText(f *store.Filter) string { return text(viewFilter(f)) }

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
		summary: "List the changes that were made by this API and by commands, the newest first",
	}, a.listAudit)
}

type auditInput struct {
	Queue  string `query:"queue" doc:"The queue's name; needed where there are several."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most to list."`
	Cursor string `query:"cursor" doc:"The next_cursor of the page before."`
}

// Change is one change that somebody has made.
type Change struct {
	At       string `json:"at" format:"date-time"`
	Who      string `json:"who" doc:"The name of the token, local without tokens; of a command, the user that ran it."`
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
	changes, err := a.config.Queues[in.Queue].Store.Admin().AuditLog(ctx, in.Cursor, in.Limit)
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
