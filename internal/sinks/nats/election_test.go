package nats_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/nats"
)

// replicatedStream answers as a stream does whose leaders come and go: what a leader
// holds when it is deposed is never answered, and may be stored or not.
type replicatedStream struct {
	testing.TB
	nc      *natsgo.Conn
	subject string

	mu     sync.Mutex
	leader *natsgo.Subscription
	left   int // how many messages the leader stores before it is deposed
	terms  int
	stored []int
}

// elect makes another leader. It is called with r.mu held.
func (r *replicatedStream) elect() {
	if r.leader != nil {
		_ = r.leader.Unsubscribe()
	}
	leader, err := r.nc.Subscribe(r.subject, r.store)
	if err != nil {
		r.Errorf("elect: %v", err)
	}
	r.leader, r.left, r.terms = leader, 100, r.terms+1
}

func (r *replicatedStream) store(m *natsgo.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader != m.Sub {
		return
	}
	number, err := strconv.Atoi(string(m.Data))
	if err != nil {
		r.Errorf("number of a message: %v", err)
	}
	if r.left--; r.left > 0 || r.terms%2 == 0 {
		r.stored = append(r.stored, number)
	}
	if r.left == 0 {
		r.elect()
		return
	}
	_ = m.Respond([]byte(`{"stream":"replicated","seq":` + strconv.Itoa(len(r.stored)) + `}`))
}

// TestOrderWhileAStreamElects deposes the leader in the middle of a batch of one
// Key, again and again: nothing is stored first after a later message.
func TestOrderWhileAStreamElects(t *testing.T) {
	t.Parallel()
	b := broker{url: testenv.NATS(t)}
	nc, _ := b.open(t)
	t.Cleanup(nc.Close)
	stream := &replicatedStream{TB: t, nc: nc, subject: testenv.Name(t, "elects")}
	sink := newSink(t, nats.Config{URL: b.url, PublishTimeout: 500 * time.Millisecond})
	batch := ofKey(t, stream.subject, "a", 500)
	for i := range batch {
		batch[i].Body = []byte(strconv.Itoa(i))
	}
	stream.mu.Lock()
	stream.elect()
	stream.mu.Unlock()
	require.NoError(t, nc.Flush())
	for left := batch; len(left) > 0; {
		var again []message.Message
		for i, outcome := range publish(t, sink, left...) {
			if outcome.Class != sinks.Acknowledged {
				again = append(again, left[i])
			}
		}
		left = again
	}
	stream.mu.Lock()
	defer stream.mu.Unlock()
	require.Greater(t, stream.terms, 4)
	seen := map[int]bool{}
	for _, number := range stream.stored {
		require.True(t, seen[number] || number == len(seen), "%d stored first after %d others", number, len(seen))
		seen[number] = true
	}
	require.Len(t, seen, len(batch))
}
