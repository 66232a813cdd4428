package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// recurrings has the calls for recurring schedules. A caller of certain topics may see and change the schedules of these.
type recurrings struct{ *core }

func (r *recurrings) register() {
	const all, one = "/queues/{queue}/recurring", "/queues/{queue}/recurring/{name}"
	register(r.core, operation{id: "recurrings", method: http.MethodGet, path: all, roles: everybody, summary: "List the recurring schedules, by name"}, r.list)
	register(r.core, operation{id: "recurring", method: http.MethodGet, path: one, roles: everybody, summary: "Show a recurring schedule"}, r.show)
	register(r.core, operation{
		id: "setRecurring", method: http.MethodPut, path: one, roles: producers,
		summary: "Create a recurring schedule, or replace it: then firings of the old one that are not due yet are cancelled; an equal one stays as it is",
	}, r.set)
	register(r.core, operation{id: "deleteRecurring", method: http.MethodDelete, path: one, roles: producers, summary: "Delete a recurring schedule; its firings that are not due yet are cancelled"}, r.delete)
	register(r.core, operation{
		id: "pauseRecurring", method: http.MethodPost, path: one + ":pause", roles: producers,
		summary: "Let a recurring schedule not fire until it is resumed; its firings that are not due yet are cancelled",
	}, r.pause)
	register(r.core, operation{
		id: "resumeRecurring", method: http.MethodPost, path: one + ":resume", roles: producers,
		summary: "Let a recurring schedule fire again, from now on",
	}, r.resume)
}

// RecurringParam names the recurring schedule of a call.
type RecurringParam struct {
	QueueParam

	Name string `path:"name" doc:"The name of the recurring schedule." example:"daily-report"`
}

type recurringsOutput struct {
	Body struct {
		Recurring []operate.RecurringState `json:"recurring" nullable:"false"`
	}
}

func (r *recurrings) list(ctx context.Context, in *QueueParam) (*recurringsOutput, error) {
	list, err := queuesOf(ctx)[in.Queue].Recurrings(ctx)
	if err != nil {
		return nil, err
	}
	out := &recurringsOutput{}
	out.Body.Recurring = slices.DeleteFunc(list, func(s operate.RecurringState) bool { return !callOf(ctx).MaySee(s.Topic) })
	return out, nil
}

type recurringOutput struct{ Body operate.RecurringState }

type recurringInput struct {
	RecurringParam

	WithBody bool `query:"body" doc:"With the payload."`
}

func (r *recurrings) show(ctx context.Context, in *recurringInput) (*recurringOutput, error) {
	state, err := queuesOf(ctx)[in.Queue].Recurring(ctx, in.Name, in.WithBody)
	if err != nil {
		return nil, err
	}
	if caller := callOf(ctx); !caller.MaySee(state.Topic) {
		return nil, forbidden(caller.Name + " may not see recurring schedules of this topic")
	}
	if in.WithBody {
		r.auditedRead(ctx, in.Queue, inspect.Change{Action: "read body", What: in.Name, Topic: state.Topic})
	}
	return &recurringOutput{state}, nil
}

type setRecurringInput struct {
	RecurringParam

	Body operate.Recurring
}

func (r *recurrings) set(ctx context.Context, in *setRecurringInput) (*recurringOutput, error) {
	if caller := callOf(ctx); !caller.MaySee(in.Body.Topic) {
		return nil, forbidden(caller.Name + " may not use the topic " + in.Body.Topic)
	}
	state, err := queuesOf(ctx)[in.Queue].SetRecurring(ctx, in.Name, &in.Body)
	return r.changed(ctx, &in.RecurringParam, "set recurring", state, err)
}

func (r *recurrings) pause(ctx context.Context, in *RecurringParam) (*recurringOutput, error) {
	state, err := queuesOf(ctx)[in.Queue].PauseRecurring(ctx, in.Name, callOf(ctx).Name)
	return r.changed(ctx, in, "pause recurring", state, err)
}

func (r *recurrings) resume(ctx context.Context, in *RecurringParam) (*recurringOutput, error) {
	state, err := queuesOf(ctx)[in.Queue].ResumeRecurring(ctx, in.Name)
	return r.changed(ctx, in, "resume recurring", state, err)
}

type recurringDeletedOutput struct{ Body operate.RecurringDeletion }

func (r *recurrings) delete(ctx context.Context, in *RecurringParam) (*recurringDeletedOutput, error) {
	deleted, err := queuesOf(ctx)[in.Queue].DeleteRecurring(ctx, in.Name)
	if _, err = r.changed(ctx, in, "delete recurring", operate.RecurringState{}, err); err != nil {
		return nil, err
	}
	return &recurringDeletedOutput{deleted}, nil
}

// changed answers a change, and writes it down, whoever has made it.
func (r *recurrings) changed(ctx context.Context, in *RecurringParam, action string, state operate.RecurringState, err error) (*recurringOutput, error) {
	r.audited(ctx, in.Queue, inspect.Change{Action: action, What: in.Name, Topic: state.Topic}, err)
	if err != nil {
		return nil, err
	}
	return &recurringOutput{state}, nil
}
