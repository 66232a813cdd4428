package sqs

import (
	"sync"

	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
)

// queue is what a sink knows of one queue.
type queue struct {
	*overhttp.Slots

	name string

	mu      sync.Mutex
	address string // as SQS has told it; empty until it is known
}

func (q *queue) known() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.address
}

func (q *queue) learn(address string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.address = address
}

// newQueues are those of a sink, by name.
func newQueues(requests int) *overhttp.Routes[*queue] {
	return overhttp.NewRoutes(func(name string) *queue {
		return &queue{Slots: overhttp.NewSlots(requests, refuse), name: name}
	})
}
