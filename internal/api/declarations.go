package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// declarations has the calls by which teams declare their queues. A caller of certain queues may declare these; a caller of certain
// topics may declare none, since a queue publishes to any topic.
type declarations struct{ *core }

func (d *declarations) register() {
	const all, one = "/declarations", "/declarations/{name}"
	register(d.core, operation{
		id: "declarations", method: http.MethodGet, path: all, roles: viewers,
		summary: "List the queues that are declared by the API, by name",
	}, d.list)
	register(d.core, operation{
		id: "declaration", method: http.MethodGet, path: one, roles: viewers,
		summary: "Show how a queue is declared by the API",
	}, d.show)
	register(d.core, operation{
		id: "declare", method: http.MethodPut, path: one, roles: operators, creates: true,
		summary: "Declare a queue, or change it: all instances have it within seconds; an equal one stays as it is",
	}, d.put)
	register(d.core, operation{
		id: "deleteDeclaration", method: http.MethodDelete, path: one, roles: operators,
		summary: "Remove a queue that was declared by the API; its messages stay in Redis",
	}, d.delete)
}

// DeclarationParam names the queue that a declaration is of.
type DeclarationParam struct {
	Name string `path:"name" doc:"The queue's name." example:"payments-reminders"`
}

type declarationsOutput struct {
	Body struct {
		Declarations []operate.Declaration `json:"declarations" nullable:"false"`
	}
}

func (d *declarations) list(ctx context.Context, _ *struct{}) (*declarationsOutput, error) {
	list, err := d.config.Declarations.List(ctx)
	if err != nil {
		return nil, err
	}
	out := &declarationsOutput{}
	out.Body.Declarations = slices.DeleteFunc(list, func(one operate.Declaration) bool { return !callOf(ctx).MayUse(one.Name) })
	return out, nil
}

type declarationOutput struct {
	ETag string `header:"ETag" doc:"The revision, in quotes."`
	Body operate.Declaration
}

func (d *declarations) show(ctx context.Context, in *DeclarationParam) (*declarationOutput, error) {
	if err := mayDeclare(ctx, in.Name); err != nil {
		return nil, err
	}
	one, err := d.config.Declarations.Get(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &declarationOutput{etag(one.Revision), one}, nil
}

type declareInput struct {
	DeclarationParam

	Match     string `header:"If-Match" doc:"The ETag of the declaration that is to be changed; * is any."`
	NoneMatch string `header:"If-None-Match" doc:"*: only if there is none. Without one of the two headers a queue is declared, and not changed."`
	Body      map[string]any
}

type declareOutput struct {
	Status int
	ETag   string `header:"ETag" doc:"The revision, in quotes."`
	Body   operate.DeclarationChange
}

func (d *declarations) put(ctx context.Context, in *declareInput) (*declareOutput, error) {
	known, err := condition(in.Match, in.NoneMatch)
	if err == nil {
		err = mayChange(ctx, in.Name)
	}
	if err != nil {
		return nil, err
	}
	change, err := d.config.Declarations.Put(ctx, in.Name, in.Body, known, callOf(ctx).Name)
	d.told(ctx, in.Name, inspect.Change{Action: "declare queue", What: in.Name, Answer: change.Status}, err)
	if err != nil {
		return nil, err
	}
	status := http.StatusOK
	if change.Status == "created" {
		status = http.StatusCreated
	}
	return &declareOutput{status, etag(change.Revision), change}, nil
}

type deleteDeclarationInput struct {
	DeclarationParam

	Match string `header:"If-Match" doc:"The ETag of the declaration; * is any. Required."`
	Keep  bool   `query:"keep_messages" doc:"Also if the queue has messages: they stay in Redis, and are published when a queue of that name is declared again."`
}

type deleteDeclarationOutput struct{ Body operate.DeclarationDeletion }

func (d *declarations) delete(ctx context.Context, in *deleteDeclarationInput) (*deleteDeclarationOutput, error) {
	known, err := condition(in.Match, "")
	if err == nil {
		err = mayChange(ctx, in.Name)
	}
	if err != nil {
		return nil, err
	}
	deleted, err := d.config.Declarations.Delete(ctx, in.Name, known, in.Keep)
	d.told(ctx, in.Name, inspect.Change{Action: "delete queue", What: in.Name}, err)
	if err != nil {
		return nil, err
	}
	return &deleteDeclarationOutput{deleted}, nil
}

// told writes a change down in the audit of its queue, which may not be there yet, or any more.
func (d *declarations) told(ctx context.Context, queue string, made inspect.Change, err error) {
	if caller := callOf(ctx); isChange(&made, err) && made.Answer != "unchanged" {
		d.writeTo(ctx, d.config.Declarations.Admin(queue), queue, caller.Name, caller.request, made, (*inspect.Admin).Audit)
	}
}

// mayDeclare refuses a queue that the caller may not use.
func mayDeclare(ctx context.Context, queue string) error {
	if caller := callOf(ctx); !caller.MayUse(queue) {
		return forbidden(caller.Name + " may not use the queue " + queue)
	}
	return nil
}

// mayChange refuses also who may use certain topics only.
func mayChange(ctx context.Context, queue string) error {
	if caller := callOf(ctx); !caller.SeesAllTopics() {
		return forbidden(caller.Name + " may use certain topics only, and a queue publishes to any")
	}
	return mayDeclare(ctx, queue)
}

func etag(revision string) string { return `"` + revision + `"` }

// condition reads the headers that say what a caller knows.
func condition(match, noneMatch string) (known operate.Condition, err error) {
	switch {
	case match != "" && noneMatch != "":
		return known, invalid("If-None-Match", "give If-Match or If-None-Match, and not both")
	case noneMatch != "" && noneMatch != "*":
		return known, invalid("If-None-Match", "If-None-Match must be *: there is no declaration of that name")
	case noneMatch == "*":
		return operate.Condition{IsNew: true}, nil
	case match == "" || match == "*":
		return operate.Condition{Revision: match}, nil
	}
	revision, isQuoted := strings.CutPrefix(match, `"`)
	if isQuoted {
		revision, isQuoted = strings.CutSuffix(revision, `"`)
	}
	if !isQuoted || revision == "" || strings.Contains(revision, `"`) {
		return known, invalid("If-Match", "If-Match must be one ETag in its quotes, or *")
	}
	return operate.Condition{Revision: revision}, nil
}
