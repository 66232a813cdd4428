package preflight

import (
	"context"
	"log/slog"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// inlet looks for what an inlet consumes. Its replies and its dead topic are checked with the sink's topics.
func (f *Flight) inlet(name string) (check.Step, error) {
	cfg := f.config.Inlets[name]
	sink := f.config.Sinks[cfg.Sink]
	from, err := sink.Source("delaybridge-check", source.Options{
		Topic: cfg.From.Name(), Stream: cfg.From.Stream, Group: config.InletGroup(name), Inlet: name, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return check.Step{}, err
	}
	return check.Step{Area: string(sink.Type), Subject: "inlet " + name, Run: func(ctx context.Context) []check.Finding {
		finder, ok := from.(source.Finder)
		if !ok {
			return nil
		}
		if err := finder.Find(ctx); err != nil {
			return []check.Finding{{
				Level: check.Error, Code: "inlet_unread", What: err.Error(),
				Why:    "nothing that is published there is scheduled, cancelled or rescheduled",
				Remedy: "make " + cfg.From.Name() + " at the broker, allow the user of sinks." + cfg.Sink + " to read it (bridge config acl --broker), or correct inlets." + name + ".from",
			}}
		}
		return nil
	}}, nil
}
