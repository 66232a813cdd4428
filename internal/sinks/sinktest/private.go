package sinktest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

const (
	// prompt is how soon a sink says that its broker is down.
	prompt = 10 * time.Second
	// short is a deadline that ends while a broker is paused.
	short = 2 * time.Second
	// patient is a deadline that ends while a broker is slow, and not while this machine
	// is for a moment.
	patient = 5 * time.Second
	// recovery is the default of Features.Recovery.
	recovery = 15 * time.Second
)

// awaitPublish publishes one message after the other until one is acknowledged.
func (l *ledger) awaitPublish(t testing.TB, broker Broker, sink sinks.Sink, topic string) {
	t.Helper()
	limit := broker.Features().Recovery
	if limit == 0 {
		limit = recovery
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		outcome := l.publish(t, sink, limit, newMessage(topic, newName("key")))[0]
		assert.Equal(c, sinks.Acknowledged, outcome.Class, "cause: %v", outcome.Err)
	}, limit+margin, 50*time.Millisecond, "the sink must work again by itself")
}

// ping asks with a deadline of its own.
func ping(sink sinks.Sink, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return sink.Ping(ctx)
}

// usedSink opens a sink and lets it publish once, so that it is connected.
func usedSink(t testing.TB, broker Broker, l *ledger, topic string) sinks.Sink {
	t.Helper()
	sink := openSink(t, broker, Options{})
	l.awaitPublish(t, broker, sink, topic)
	return sink
}

// pingFollowsBroker kills the broker, starts it, pauses it and resumes it. Ping
// says soon what is so.
func pingFollowsBroker(t *testing.T, broker PrivateBroker) {
	sink := openSink(t, broker, Options{})
	require.NoError(t, ping(sink, ample))
	broker.Kill(t)
	began := time.Now()
	require.Error(t, ping(sink, ample))
	require.Less(t, time.Since(began), prompt)
	broker.Start(t)
	require.Eventually(t, func() bool { return ping(sink, prompt) == nil }, recovery, 50*time.Millisecond)
	broker.Pause(t)
	began = time.Now()
	err := ping(sink, short)
	took := time.Since(began)
	broker.Resume(t)
	require.Error(t, err)
	require.Less(t, took, short+margin)
	require.Eventually(t, func() bool { return ping(sink, prompt) == nil }, recovery, 50*time.Millisecond)
}

// brokerDown publishes while the broker is down. Calls end soon and say, once the
// lost connections are seen, that nothing was stored. The sink works again by itself
// when the broker is back.
func brokerDown(t *testing.T, broker PrivateBroker) {
	topic := newTopic(t, broker)
	var l ledger
	used := usedSink(t, broker, &l, topic)
	broker.Kill(t)
	fresh := openSink(t, broker, Options{})
	publish := func(sink sinks.Sink) []sinks.Outcome {
		began := time.Now()
		outcomes := l.publish(t, sink, ample, newBatch(topic, newName("key"), 50)...)
		require.Less(t, time.Since(began), prompt)
		return outcomes
	}
	// A call may hand something to a connection whose end is not seen yet, once for each.
	unseen := max(1, broker.Features().Connections)
	for told := 0; told < 3; {
		requireAll(t, publish(fresh), sinks.Unavailable)
		outcomes := publish(used)
		isUnknown := func(o sinks.Outcome) bool { return o.Class == sinks.Unknown }
		if unseen > 0 && slices.ContainsFunc(outcomes, isUnknown) {
			requireAll(t, outcomes, sinks.Unknown, sinks.Unavailable)
			unseen--
			continue
		}
		requireAll(t, outcomes, sinks.Unavailable)
		told++
	}
	broker.Start(t)
	l.awaitPublish(t, broker, used, topic)
	l.awaitPublish(t, broker, fresh, topic)
	l.verify(t, broker, topic)
}

// killedMidPublish kills the broker while writers publish without a pause, and
// starts it again. What was acknowledged is there, nothing is stored twice, and
// what was said not to be stored is not.
func killedMidPublish(t *testing.T, broker PrivateBroker) {
	topic := newTopic(t, broker)
	var l ledger
	sink := usedSink(t, broker, &l, topic)
	var writers, warm sync.WaitGroup
	var stop atomic.Bool
	var failed atomic.Int64
	failing := make(chan struct{})
	const count = 4
	for range count {
		warm.Add(1)
		writers.Go(func() {
			warmUp := sync.OnceFunc(warm.Done)
			defer warmUp()
			for !stop.Load() {
				// Each call has a Key of its own, since a poller would not publish later
				// messages of a Key before the earlier ones are settled.
				outcomes := l.publish(t, sink, ample, newBatch(topic, newName("key"), deep(broker)/5)...)
				warmUp()
				if outcomes[len(outcomes)-1].Class == sinks.Acknowledged {
					continue
				}
				if failed.Add(1) == count {
					close(failing)
				}
				if failed.Load() >= count {
					return
				}
			}
		})
	}
	warm.Wait()
	broker.Kill(t)
	select {
	case <-failing:
	case <-time.After(ample):
		t.Error("no call failed though the broker is gone")
	}
	stop.Store(true)
	writers.Wait()
	broker.Start(t)
	l.awaitPublish(t, broker, sink, topic)
	l.verify(t, broker, topic)
}

// pausedBroker publishes to a broker that answers nothing: a little, which fits
// into the buffers on the way, and a lot, which does not. Calls end with their
// context, and nothing is called acknowledged or stored twice.
func pausedBroker(t *testing.T, broker PrivateBroker) {
	topic := newTopic(t, broker)
	var l ledger
	small, large := usedSink(t, broker, &l, topic), usedSink(t, broker, &l, topic)
	batch := newBatch(topic, newName("key"), 64)
	for i := range batch {
		batch[i].Body = randomBody(256 << 10)
	}
	broker.Pause(t)
	var publishing sync.WaitGroup
	var outcomes [3][]sinks.Outcome
	publishing.Go(func() { outcomes[0] = l.publish(t, small, short, newBatch(topic, newName("key"), 10)...) })
	publishing.Go(func() { outcomes[1] = l.publish(t, large, short, batch...) })
	publishing.Go(func() { outcomes[2] = l.publish(t, large, short, newBatch(topic, newName("key"), 10)...) })
	publishing.Wait()
	broker.Resume(t)
	for _, o := range outcomes {
		requireAll(t, o, sinks.Unknown, sinks.Unavailable)
	}
	l.awaitPublish(t, broker, small, topic)
	l.awaitPublish(t, broker, large, topic)
	l.verify(t, broker, topic)
}

// pausedConnect connects to a broker that accepts connections and says nothing.
// The sink says that nothing was stored, and works when the broker is resumed.
func pausedConnect(t *testing.T, broker PrivateBroker) {
	topic, sink := newTopic(t, broker), openSink(t, broker, Options{})
	broker.Pause(t)
	var l ledger
	outcomes := l.publish(t, sink, short, newBatch(topic, newName("key"), 10)...)
	broker.Resume(t)
	requireAll(t, outcomes, sinks.Unavailable)
	l.awaitPublish(t, broker, sink, topic)
	l.verify(t, broker, topic)
}

// publishTimeout publishes to a broker that does not answer. The sink gives up by
// itself, after its own publish timeout.
func publishTimeout(t *testing.T, broker PrivateBroker) {
	topic := newTopic(t, broker)
	var l ledger
	sink := openSink(t, broker, Options{PublishTimeout: short})
	l.awaitPublish(t, broker, sink, topic)
	broker.Pause(t)
	began := time.Now()
	outcomes := l.publish(t, sink, ample, newBatch(topic, newName("key"), 10)...)
	took := time.Since(began)
	broker.Resume(t)
	requireAll(t, outcomes, sinks.Unknown, sinks.Unavailable)
	require.Less(t, took, short+margin)
	l.awaitPublish(t, broker, sink, topic)
	l.verify(t, broker, topic)
}

// requireClosed closes the sink within limit and checks what a closed sink does.
func requireClosed(t *testing.T, sink sinks.Sink, topic string, limit time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	require.NoError(t, sink.Close(ctx))
	require.Less(t, time.Since(began), limit+margin)
	require.NoError(t, sink.Close(ctx), "Close may be called twice")
	var l ledger
	for _, outcome := range l.publish(t, sink, ample, newBatch(topic, "", 3)...) {
		requireOutcome(t, outcome, sinks.Unavailable, sinks.ReasonClosed)
	}
	require.Error(t, ping(sink, short))
}

// closeIdle closes sinks that have nothing under way. No goroutine stays, and what
// is published afterwards is refused.
func closeIdle(t *testing.T, broker PrivateBroker) {
	topic := newTopic(t, broker)
	leaks := append(broker.Features().Leaks, goleak.IgnoreCurrent())
	var l ledger
	unused, used := openSink(t, broker, Options{}), usedSink(t, broker, &l, topic)
	requireClosed(t, unused, topic, closeTimeout)
	requireClosed(t, used, topic, closeTimeout)
	goleak.VerifyNone(t, leaks...)
	l.verify(t, broker, topic)
}

// closeBusy closes a sink while writers publish without a pause. Each of their
// messages gets a true answer.
func closeBusy(t *testing.T, broker PrivateBroker) {
	topic := newTopic(t, broker)
	leaks := append(broker.Features().Leaks, goleak.IgnoreCurrent())
	var l ledger
	sink := usedSink(t, broker, &l, topic)
	var writers, warm sync.WaitGroup
	for range 4 {
		warm.Add(1)
		writers.Go(func() {
			warmUp := sync.OnceFunc(warm.Done)
			defer warmUp()
			for {
				outcomes := l.publish(t, sink, ample, newBatch(topic, newName("key"), deep(broker)/5)...)
				warmUp()
				for _, outcome := range outcomes {
					if outcome.Class != sinks.Acknowledged {
						return
					}
				}
			}
		})
	}
	warm.Wait()
	requireClosed(t, sink, topic, closeTimeout)
	requireDone(t, &writers)
	goleak.VerifyNone(t, leaks...)
	l.verify(t, broker, topic)
}

// closePaused closes a sink whose broker does not answer. It closes all the same, in
// time, and calls nothing acknowledged.
func closePaused(t *testing.T, broker PrivateBroker) {
	topic := newTopic(t, broker)
	leaks := append(broker.Features().Leaks, goleak.IgnoreCurrent())
	var l ledger
	sink := openSink(t, broker, Options{PublishTimeout: ample}) // which must not be what ends Close
	l.awaitPublish(t, broker, sink, topic)
	batch := newBatch(topic, "", 32) // Without a Key all are written at once: more than a socket takes.
	for i := range batch {
		batch[i].Body = randomBody(256 << 10)
	}
	broker.Pause(t)
	var publishing sync.WaitGroup
	for _, b := range [][]message.Message{batch, newBatch(topic, newName("key"), 10)} {
		publishing.Go(func() {
			for _, outcome := range l.publish(t, sink, ample, b...) {
				if outcome.Class != sinks.Unknown && outcome.Class != sinks.Unavailable {
					t.Errorf("outcome %s of a broker that is paused", outcome.Class)
				}
			}
		})
	}
	idle := make(chan struct{})
	go func() { defer close(idle); publishing.Wait() }()
	select {
	case <-idle:
		t.Error("Publish returned before its deadline and before Close")
	case <-time.After(500 * time.Millisecond):
	}
	requireClosed(t, sink, topic, closeTimeout)
	requireDone(t, &publishing)
	<-idle
	goleak.VerifyNone(t, leaks...)
	broker.Resume(t)
	l.verify(t, broker, topic)
}

// requireDone fails the test unless the group is done very soon.
func requireDone(t *testing.T, group *sync.WaitGroup) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); group.Wait() }()
	select {
	case <-done:
	case <-time.After(margin):
		t.Fatal("Publish still runs after Close returned")
	}
}

// wrongPassword publishes with a login that the broker refuses, several times: the
// sink neither gives up for ever nor hides the reason after the first time. The
// messages wait.
func wrongPassword(t *testing.T, broker PrivateBroker) {
	topic, sink := newTopic(t, broker), openSink(t, broker, Options{WrongPassword: true})
	var l ledger
	for range 4 {
		began := time.Now()
		for _, outcome := range l.publish(t, sink, ample, newBatch(topic, newName("key"), 5)...) {
			requireOutcome(t, outcome, sinks.Unavailable, sinks.ReasonAuth)
		}
		require.Less(t, time.Since(began), prompt)
		require.Error(t, ping(sink, prompt))
	}
	l.verify(t, broker, topic)
}
