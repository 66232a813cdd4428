package app

import (
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
