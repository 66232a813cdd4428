package sinktest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// MovingLeaders makes each move, by which another server comes to lead the topic, while
// several writers publish to it, and holds what the sink said against what is stored (I3,
// I11, I15): what a leader had when it was deposed is stored or not, and nobody knows. After
// each move the sink must work again. As the poller does, writers publish what has a Key
// until it is acknowledged, before anything later of its Key: what is Unknown may come to be
// stored at any time. What has no Key is published once.
func MovingLeaders(t *testing.T, broker Broker, topic string, options Options, moves ...func()) {
	const (
		writers = 8
		pause   = 100 * time.Millisecond // of a writer, if nothing is to do or nothing was acknowledged
		before  = 1000                   // messages that are acknowledged before a move
		most    = 6000                   // with those that are acknowledged while it is made, and after it
	)
	sink := openSink(t, broker, options)
	var (
		l                  ledger
		acknowledged, goal atomic.Int64
		writing            sync.WaitGroup
		stopped            = make(chan struct{})
		stop               = sync.OnceFunc(func() { close(stopped); writing.Wait() })
		await              = func(n int64) {
			t.Helper()
			require.Eventually(t, func() bool { return acknowledged.Load() >= n }, 4*ample, time.Millisecond)
		}
	)
	defer stop()
	for writer := range writers {
		writing.Go(func() {
			turn := time.NewTicker(pause)
			defer turn.Stop()
			var batch []message.Message
			for !isClosed(stopped) || len(batch) > 0 && !t.Failed() {
				n := 0
				if acknowledged.Load() < goal.Load() || isClosed(stopped) {
					if len(batch) == 0 {
						batch = halfOfTenKeys(topic, fmt.Sprintf("writer-%d", writer))
					}
					batch, n = left(batch, l.publish(t, sink, 2*ample, batch...))
					acknowledged.Add(int64(n))
				}
				if n == 0 {
					<-turn.C
				}
			}
		})
	}
	for _, move := range moves {
		from := acknowledged.Load()
		goal.Store(from + most)
		await(from + before)
		move()
		await(from + most)
	}
	stop()
	// Kafka's new leader shows all that it has when its follower has told how far it is, as for
	// something that it has acknowledged.
	require.Eventually(t, func() bool {
		last := halfOfTenKeys(topic, newName("last"))
		_, n := left(last, l.publish(t, sink, 2*ample, last...))
		return n == len(last)
	}, 4*ample, time.Millisecond)
	told := map[string]int{}
	for _, e := range l.entries {
		told[e.outcome.Class.String()]++
	}
	t.Logf("%v; %d never acknowledged, and stored", told, l.verify(t, broker, topic))
}

// halfOfTenKeys makes a hundred messages, every second of which has one of ten Keys.
func halfOfTenKeys(topic, key string) []message.Message {
	batch := newBatch(topic, "", 100)
	for i := 0; i < len(batch); i += 2 {
		batch[i].Key = fmt.Sprintf("%s-%d", key, i/2%10)
	}
	return batch
}

// left are the messages with a Key that were not acknowledged.
func left(batch []message.Message, outcomes []sinks.Outcome) (again []message.Message, acknowledged int) {
	for i, outcome := range outcomes {
		switch {
		case outcome.Class == sinks.Acknowledged:
			acknowledged++
		case batch[i].Key != "":
			again = append(again, batch[i])
			again[len(again)-1].Body = bodyOf(batch[i].ID) // the ledger has cleared it
		}
	}
	return again, acknowledged
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
