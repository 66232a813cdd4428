package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/engine/ijson"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// core is what the resources share: the queues, who may use them, and how a call is
// described.
type core struct {
	config *Config
	router *router
	huma   huma.API
	// described is the API's own description, see schema.go.
	described huma.API
	// told bounds what there may be much of in the audit.
	auditCounts auditCounts
}

func newCore(config *Config) *core {
	c := &core{config: config}
	c.router = newRouter(c)
	c.huma = huma.NewAPI(huma.Config{
		OpenAPI:                      newDescription(config.Version),
		Formats:                      map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
	}, c.router)
	c.described = huma.NewAPI(huma.Config{OpenAPI: newDescription(config.Version)}, nowhere{})
	return c
}

var jsonFormat = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshal}

// unmarshal reads a body. huma does so twice: first into any value, to check it.
func unmarshal(body []byte, into any) error {
	err := json.Unmarshal(body, into)
	if _, isFirst := into.(*any); !isFirst {
		return err
	}
	if err != nil {
		return invalid("", "the request is no JSON: "+err.Error())
	}
	return checkBody(body)
}

// checkBody refuses what the decoder of JSON would replace or leave out without a word.
func checkBody(body []byte) error {
	if !utf8.Valid(body) {
		return invalid("body", "the request is not UTF-8: give other bytes as body_base64")
	}
	wrong := new(ijson.Error)
	if err := ijson.Check(body); errors.As(err, &wrong) {
		return invalid(wrong.Field, wrong.Error())
	}
	return nil
}

// mayUse refuses a queue that the caller may not use, and one that is not there;
// in this order, so that no caller learns which there are.
func (c *core) mayUse(ctx context.Context, caller *access.Caller, queue string) error {
	if queue == "" {
		return nil
	}
	if !caller.MayUse(queue) {
		return forbidden(caller.Name + " may not use the queue " + queue)
	}
	if queuesOf(ctx)[queue] == nil {
		return notFound("there is no queue " + queue)
	}
	return nil
}

// names are those of the queues that the caller may use.
func (c *core) names(ctx context.Context) []string { return namesOf(ctx, queuesOf(ctx)) }

// namesOf are those of the queues that the caller may use, of these.
func namesOf(ctx context.Context, queues map[string]*operate.Queue) []string {
	caller := callOf(ctx)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(queues)), func(name string) bool { return !caller.MayUse(name) })
}

// queuesKey is the key of the queues in a call's context.
type queuesKey struct{}

// withQueues has a call use the queues that there are now until it ends: one that is removed meanwhile
// is still there for it.
func (c *core) withQueues(ctx context.Context) context.Context {
	return context.WithValue(ctx, queuesKey{}, c.config.Queues())
}

// queuesOf are the queues of a call, by name.
func queuesOf(ctx context.Context) map[string]*operate.Queue {
	queues, _ := ctx.Value(queuesKey{}).(map[string]*operate.Queue)
	return queues
}

// operation describes a call to huma.
type operation struct {
	id, method, path, summary string
	roles                     []access.Role
	status                    int        // 0: 200
	creates                   bool       // it answers 201 where it has made something
	body                      bodyLimits // smallLimits by default
}

// Who may make a call.
var (
	producers = []access.Role{access.Producer, access.Operator}
	everybody = []access.Role{access.Producer, access.Viewer, access.Operator}
	viewers   = []access.Role{access.Viewer, access.Operator}
	operators = []access.Role{access.Operator}
)

// register adds a call. The handler's errors become problems.
func register[I, O any](c *core, op operation, handle func(ctx context.Context, in *I) (*O, error)) {
	call := huma.Operation{
		OperationID: op.id, Method: op.method, Path: op.path, Summary: op.summary, DefaultStatus: op.status,
		MaxBodyBytes: -1, BodyReadTimeout: -1, // The body is here already, see router.serve.
		Metadata: map[string]any{metaRoles: op.roles, metaBody: cmp.Or(op.body, smallLimits), metaCreates: op.creates},
	}
	describe[I, O](c, call)
	huma.Register(c.huma, call, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			p := problem(err)
			c.auditRefusal(ctx, callOf(ctx).request, callOf(ctx).Name, op.id, p)
			return nil, c.failed(ctx, op.id, p)
		}
		return out, nil
	})
}

// failed logs what is our own mistake.
func (c *core) failed(ctx context.Context, operation string, p *Problem) error {
	if p.Code == "failed" {
		c.config.Logger.ErrorContext(ctx, "call failed", "event", "api", "operation", operation, "request", callOf(ctx).request.Header.Get(requestID), "err", p.Detail)
	}
	return p
}

// QueueParam names the queue of a call.
type QueueParam struct {
	Queue string `path:"queue" doc:"The queue's name." example:"orders"`
}
