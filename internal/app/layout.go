package app

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
)

// Layout is what a queue's configuration tells its producers, by way of its layout.
func Layout(cfg config.Queue, sink message.SinkType) store.Layout {
	l := store.Layout{Shards: cfg.Shards, Sink: sink, MaxMessage: int(cfg.MaxMessage)}
	l.Rules.Topics = cfg.Topics
	if cfg.History.Count > 0 {
		l.Rules.History = layout.History(cfg.History)
	}
	return l
}

// topics are those that a queue takes, by its layout.
type topics struct{ queue *store.Queue }

// Known implements [poller.Topics].
func (t topics) Known() message.Topics {
	if l := t.queue.Layouts().InUse(); l != nil {
		return l.Rules.Topics
	}
	return nil
}

// Ask implements [poller.Topics].
func (t topics) Ask(ctx context.Context) (message.Topics, error) {
	l, err := t.queue.LoadLayout(ctx)
	if err != nil {
		return nil, err
	}
	return l.Rules.Topics, nil
}
