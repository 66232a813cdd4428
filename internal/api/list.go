package api

import (
	"context"
	"net/http"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// listing has the call that lists messages.
type listing struct{ *core }

func (l *listing) register() {
	register(l.core, operation{
		id: "list", method: http.MethodGet, path: "/queues/{queue}/messages", roles: viewers,
		summary: "List messages: what waits comes first, in due order, then what is parked, in flight and dead",
	}, l.listMessages)
}

type listInput struct {
	QueueParam

	operate.Filter

	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most to list."`
	Cursor string `query:"cursor" doc:"The next_cursor of the previous page."`
}

type listOutput struct {
	Body struct {
		Messages []operate.Message `json:"messages" nullable:"false" doc:"A page may be empty although more pages follow."`
		Looked   int               `json:"looked" doc:"How many messages were read for this page; use it to show the progress of a search."`
		Next     string            `json:"next_cursor" doc:"The cursor of the next page; empty on the last one."`
	}
}

func (l *listing) listMessages(ctx context.Context, in *listInput) (*listOutput, error) {
	caller := callOf(ctx)
	if in.Topic != "" && !caller.MaySee(in.Topic) {
		return nil, forbidden(caller.Name + " may not see messages of this topic")
	}
	filter, err := in.Parse()
	if err != nil {
		return nil, err
	}
	page, err := queuesOf(ctx)[in.Queue].List(ctx, inspect.ListRequest{Filter: filter, Limit: in.Limit, After: in.Cursor})
	if err != nil {
		return nil, err
	}
	out := &listOutput{}
	out.Body.Next, out.Body.Looked = page.Next, page.Looked
	out.Body.Messages = make([]operate.Message, 0, len(page.Messages))
	for i := range page.Messages {
		// Who is limited to topics finds those; what cannot be read may be of any.
		if m := &page.Messages[i]; caller.MaySee(m.Found.Topic) {
			out.Body.Messages = append(out.Body.Messages, operate.ViewMessage(&m.Found, m.State))
		}
	}
	return out, nil
}
