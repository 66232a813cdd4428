package membership

import (
	"maps"
	"slices"
	"time"
)

// pauses follows what operators have paused.
type pauses struct {
	config *Config

	topics map[string]time.Time // nil before the first time
}

// hear takes what a heartbeat has brought, before any shard is assigned: so an
// instance that comes claims nothing that is paused.
func (p *pauses) hear(topics map[string]time.Time, poller Poller) {
	if p.topics != nil && maps.EqualFunc(topics, p.topics, time.Time.Equal) {
		return
	}
	before := p.topics
	p.topics = topics
	poller.Pause(topics)
	p.config.Observer.Paused(p.config.Queue, topics)
	paused, resumed := without(named(topics), named(before)), without(named(before), named(topics))
	if len(paused)+len(resumed) > 0 {
		p.config.Logger.Info("pauses changed", "event", "pause", "paused", joined(paused), "resumed", joined(resumed))
	}
}

// named are the topics for the log, sorted.
func named(topics map[string]time.Time) []string {
	names := slices.Sorted(maps.Keys(topics))
	if len(names) > 0 && names[0] == "" {
		names[0] = "the whole queue"
	}
	return names
}
