package sqs

import (
	"sync"

	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
)

// queuesMost bounds the queues that are remembered, beside those in use.
const queuesMost = 4096

// queue is what a sink knows of one queue.
type queue struct {
	*overhttp.Slots

	name string
	uses int // guarded by the sink's queues

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

// queues are those of a sink, by name.
type queues struct {
	requests int

	mu     sync.Mutex
	byName map[string]*queue
}

func newQueues(requests int) *queues { return &queues{requests: requests, byName: map[string]*queue{}} }

// use returns a queue, which the caller gives back by done.
func (q *queues) use(name string) (used *queue, done func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.byName[name] == nil {
		q.forget()
		q.byName[name] = &queue{Slots: overhttp.NewSlots(q.requests, refuse), name: name}
	}
	used = q.byName[name]
	used.uses++
	return used, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		used.uses--
	}
}

// forget makes room. It is called with q.mu held.
func (q *queues) forget() {
	if len(q.byName) < queuesMost {
		return
	}
	for name, of := range q.byName {
		if of.uses == 0 {
			delete(q.byName, name)
		}
	}
}

// any is the name of a queue that SQS knows; empty if there is none.
func (q *queues) any() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, of := range q.byName {
		if of.known() != "" {
			return name
		}
	}
	return ""
}
