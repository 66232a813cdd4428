package relay

import (
	"log/slog"
	"maps"
	"slices"

	"github.com/delaybridge/delaybridge/internal/outbox"
)

// served are the queues whose rows a relay takes. Nobody changes them: others follow, see [Relay.Change].
type served struct {
	queues map[string]*servedQueue
	names  []string // sorted
}

// servedQueue is a queue with its outages: of messages, and of operations, which a full Redis still accepts.
type servedQueue struct {
	outbox.Queue

	messages, operations *outbox.Outage
}

// change returns the queues without those that are gone, and with those that have come. What is neither keeps its outages.
func (s *served) change(log *slog.Logger, gone []string, come []outbox.Queue) *served {
	next := &served{queues: map[string]*servedQueue{}}
	maps.Copy(next.queues, s.queues)
	for _, name := range gone {
		delete(next.queues, name)
	}
	for _, q := range come {
		log := log.With("queue", q.Name)
		next.queues[q.Name] = &servedQueue{q, &outbox.Outage{Log: log, What: "queue"}, &outbox.Outage{Log: log, What: "operations"}}
	}
	next.names = slices.Sorted(maps.Keys(next.queues))
	return next
}
