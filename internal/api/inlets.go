package api

import (
	"context"
	"net/http"

	"github.com/delaybridge/delaybridge/internal/operate"
)

// inlets has the call that tells what becomes of the messages of inlets.
type inlets struct{ *core }

func (i *inlets) register() {
	register(i.core, operation{
		id: "inlets", method: http.MethodGet, path: "/inlets", roles: viewers,
		summary: "Show the inlets as the instance sees them that is asked: whether it consumes or why not, what waits, and what came of the messages that it had",
	}, i.show)
}

type inletsOutput struct{ Body operate.Inlets }

func (i *inlets) show(ctx context.Context, _ *struct{}) (*inletsOutput, error) {
	caller, all := callOf(ctx), i.config.Inlets()
	out := &inletsOutput{operate.Inlets{Instance: all.Instance, Began: all.Began, Inlets: []operate.InletView{}}}
	for _, v := range all.Inlets {
		if len(caller.Topics()) > 0 {
			v.Refused = nil // It may be of any topic.
		}
		if caller.MayUse(v.Queue) {
			out.Body.Inlets = append(out.Body.Inlets, v)
		}
	}
	return out, nil
}
