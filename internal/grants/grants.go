// Package grants tells the least that a broker must allow the bridge, by its
// configuration: as commands or settings for the broker's own tools. Where a queue
// names no topics, that is any topic.
package grants

import (
	"maps"
	"slices"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// Lines are what an administrator of the sink's broker is to do; those that begin with
// a # are remarks.
func Lines(cfg *config.Config, sink string) []string {
	return cfg.Sinks[sink].Settings("").Grants(useOf(cfg, sink))
}

func useOf(cfg *config.Config, sink string) (use kind.Use) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Queues)) {
		queue := cfg.Queues[name]
		if queue.Sink != sink {
			continue
		}
		if len(queue.Topics) == 0 {
			use.Topics = append(use.Topics, "*")
		}
		use.Topics = append(use.Topics, queue.Topics...)
		if queue.Canary.Topic != "" {
			use.Topics = append(use.Topics, queue.Canary.Topic)
		}
		if topic := cfg.CompensationTopic(name); topic != "" {
			dead := source.DeadTopic(topic)
			use.Consumed = append(use.Consumed, kind.CompensationTopic{Topic: topic, Dead: dead, Group: source.Group(cfg.Prefix, name)})
			use.Topics = append(use.Topics, dead)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Inlets)) {
		inlet := cfg.Inlets[name]
		if inlet.Sink != sink {
			continue
		}
		use.Inlets = append(use.Inlets, kind.Inlet{Topic: inlet.From.Name(), Stream: inlet.From.Stream, Group: config.InletGroup(name)})
		for _, topic := range []string{inlet.Replies, inlet.Dead} {
			if topic != "" {
				use.Topics = append(use.Topics, topic)
			}
		}
	}
	slices.Sort(use.Topics)
	use.Topics = slices.Compact(use.Topics)
	if slices.Contains(use.Topics, "*") {
		use.Topics = []string{"*"}
	}
	return use
}
