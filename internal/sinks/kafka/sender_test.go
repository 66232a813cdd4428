package kafka

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

func TestUnknownOutcomeIsNotResent(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]answer{
		"timed out":         {code: kafka.RequestTimedOut},
		"too few afterward": {code: kafka.NotEnoughReplicasAfterAppend},
		"unlisted code":     {code: kafka.Unknown},
		"hung up":           {hangUp: true},
		// The partition left the broker while the request waited there for its replicas.
		"leader moved":  {code: kafka.NotLeaderForPartition, appended: true},
		"topic deleted": {code: kafka.UnknownTopicOrPartition, appended: true},
		// No produce of Kafka's is answered so.
		"no leader": {code: kafka.LeaderNotAvailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broker := newFake(t, always(a))
			outcomes := publish(t, broker.sink(t), newMessages(t, "topic", "key", 3)...)
			for _, outcome := range outcomes {
				require.Equal(t, sinks.Unknown, outcome.Class, outcome.Err)
			}
			require.Len(t, broker.seen(), 1)
		})
	}
}

func TestNoBrokerIsUnavailable(t *testing.T) {
	t.Parallel()
	broker := newFake(t, always(answer{}))
	broker.stop()
	requireClass(t, publish(t, broker.sink(t), newMessages(t, "topic", "key", 3)...), sinks.Unavailable, sinks.ReasonConnection)
}

// TestClosedConnectionIsNoticed lets the broker close the idle connection: what
// follows must not be published into the void.
func TestClosedConnectionIsNoticed(t *testing.T) {
	t.Parallel()
	broker := newFake(t, always(answer{}))
	sink := broker.sink(t)
	requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Acknowledged, "")
	broker.mu.Lock()
	for _, c := range broker.conns {
		require.NoError(t, c.Close())
	}
	broker.mu.Unlock()
	// Close returns before the connection is closed, if somebody reads from it.
	require.Eventually(t, func() bool { return broker.openConnections() == 0 }, patience, time.Millisecond)
	requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Acknowledged, "")
	require.Len(t, broker.seen(), 2)
}

func TestTooLargeIsDividedInOrder(t *testing.T) {
	t.Parallel()
	batch := newMessages(t, "topic", "key", 9)
	bad := batch[4].ID
	var stored []string
	broker := newFake(t, func(ids []string) answer {
		if slices.Contains(ids, bad) {
			return answer{code: kafka.MessageSizeTooLarge}
		}
		stored = append(stored, ids...)
		return answer{}
	})
	outcomes := publish(t, broker.sink(t), batch...)
	requireClass(t, outcomes[4:5], sinks.Permanent, sinks.ReasonTooLarge)
	requireClass(t, slices.Delete(slices.Clone(outcomes), 4, 5), sinks.Acknowledged, "")
	require.Equal(t, ids(slices.Delete(slices.Clone(batch), 4, 5)), stored)
}

func TestDividedRequestStopsAtFailure(t *testing.T) {
	t.Parallel()
	batch := newMessages(t, "topic", "key", 8)
	broker := newFake(t, func(ids []string) answer {
		switch len(ids) {
		case 8:
			return answer{code: kafka.RecordListTooLarge}
		case 4:
			return answer{code: kafka.RequestTimedOut}
		default:
			return answer{}
		}
	})
	outcomes := publish(t, broker.sink(t), batch...)
	requireClass(t, outcomes[:4], sinks.Unknown, sinks.ReasonTimeout)
	requireClass(t, outcomes[4:], sinks.Unavailable, sinks.ReasonTimeout)
	require.Len(t, broker.seen(), 2, "the second half must not overtake the first")
}

func TestRefusedRecordsAreLeftOut(t *testing.T) {
	t.Parallel()
	batch := newMessages(t, "topic", "key", 6)
	broker := newFake(t, func(ids []string) answer {
		if len(ids) == 6 {
			return answer{code: kafka.InvalidRecord, refused: []int32{1, 3, 77}}
		}
		return answer{}
	})
	outcomes := publish(t, broker.sink(t), batch...)
	for i, outcome := range outcomes {
		if i == 1 || i == 3 {
			requireClass(t, []sinks.Outcome{outcome}, sinks.Permanent, sinks.ReasonInvalid)
		} else {
			requireClass(t, []sinks.Outcome{outcome}, sinks.Acknowledged, "")
		}
	}
	require.Equal(t, []string{batch[0].ID, batch[2].ID, batch[4].ID, batch[5].ID}, broker.seen()[1])
}

func TestBlameOfNobodyIsDivided(t *testing.T) {
	t.Parallel()
	broker := newFake(t, func(ids []string) answer {
		if len(ids) > 1 {
			return answer{code: kafka.InvalidRecord, refused: []int32{77, -1}}
		}
		return answer{}
	})
	requireClass(t, publish(t, broker.sink(t), newMessages(t, "topic", "key", 4)...), sinks.Acknowledged, "")
}

func TestMovedLeaderIsFollowed(t *testing.T) {
	t.Parallel()
	next := newFake(t, always(answer{}))
	var first *fake
	first = newFake(t, func([]string) answer {
		first.lead(next.listener.Addr().String())
		return answer{code: kafka.NotLeaderForPartition}
	})
	requireClass(t, publish(t, first.sink(t), newMessages(t, "topic", "key", 3)...), sinks.Acknowledged, "")
	require.Len(t, first.seen(), 1)
	require.Len(t, next.seen(), 1)
}

// TestUnknownOutcomeStaysWithMovedLeader has a reason to ask again, and must not.
func TestUnknownOutcomeStaysWithMovedLeader(t *testing.T) {
	t.Parallel()
	for reason, ended := range map[sinks.Reason]answer{
		sinks.ReasonConnection: {hangUp: true},
		sinks.ReasonBroker:     {code: kafka.NotLeaderForPartition, appended: true},
	} {
		next := newFake(t, always(answer{}))
		var first *fake
		first = newFake(t, func([]string) answer {
			first.lead(next.listener.Addr().String())
			return ended
		})
		sink := first.sink(t)
		requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Unknown, reason)
		require.Empty(t, next.seen())
		requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Acknowledged, "")
		require.Len(t, next.seen(), 1, "the next call must find the new leader at once")
	}
}

func TestElectionIsWaitedForBriefly(t *testing.T) {
	t.Parallel()
	var tries atomic.Int64
	broker := newFake(t, func([]string) answer {
		if tries.Add(1) < 3 {
			return answer{code: kafka.NotLeaderForPartition}
		}
		return answer{}
	})
	sink := broker.sink(t)
	requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Acknowledged, "")
	tries.Store(-1000)
	requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Unavailable, sinks.ReasonBroker)
}

// TestCallsShareRequests holds one request and lets others queue behind it: at
// most one is under way, and what queued goes out at once and in order.
func TestCallsShareRequests(t *testing.T) {
	t.Parallel()
	held := newGate()
	broker := newFake(t, func([]string) answer { held.pass(t.Context()); return answer{} })
	sink := broker.sink(t)
	const calls = 5
	var publishing sync.WaitGroup
	var want []string
	for call := range calls {
		batch := newMessages(t, "topic", "key-"+strconv.Itoa(call), 3)
		if call > 0 {
			want = append(want, ids(batch)...)
		}
		publishing.Go(func() { requireClass(t, publish(t, sink, batch...), sinks.Acknowledged, "") })
		if call == 0 {
			<-held.entered
		} else {
			awaitQueued(t, sink, call)
		}
	}
	require.Len(t, broker.seen(), 1)
	close(held.leave)
	publishing.Wait()
	require.Len(t, broker.seen(), 2)
	require.Equal(t, want, broker.seen()[1])
	require.Eventually(t, func() bool {
		sink.mu.Lock()
		defer sink.mu.Unlock()
		return len(sink.senders) == 0
	}, patience, time.Millisecond, "a sender ends when it is empty")
}

// awaitQueued waits until that many submissions are queued with the sink's only sender.
func awaitQueued(t *testing.T, sink *Sink, count int) {
	t.Helper()
	require.Eventually(t, func() bool {
		sink.mu.Lock()
		defer sink.mu.Unlock()
		for _, s := range sink.senders {
			var submissions []*submission
			for _, i := range s.queue {
				if !slices.Contains(submissions, i.submission) {
					submissions = append(submissions, i.submission)
				}
			}
			return len(submissions) == count
		}
		return false
	}, patience, time.Millisecond)
}

func TestQueueFailsBehindFailure(t *testing.T) {
	t.Parallel()
	held := newGate()
	fail := true
	broker := newFake(t, func([]string) answer {
		held.pass(t.Context())
		if fail {
			fail = false
			return answer{code: kafka.RequestTimedOut}
		}
		return answer{}
	})
	sink := broker.sink(t)
	var publishing sync.WaitGroup
	publishing.Go(func() {
		requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Unknown, sinks.ReasonTimeout)
	})
	<-held.entered
	publishing.Go(func() {
		requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Unavailable, sinks.ReasonTimeout)
	})
	awaitQueued(t, sink, 1)
	close(held.leave)
	publishing.Wait()
	require.Len(t, broker.seen(), 1)
	requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Acknowledged, "")
}

// TestEndedCallIsWithdrawn ends two calls, one with its request under way and
// one that waits behind it.
func TestEndedCallIsWithdrawn(t *testing.T) {
	t.Parallel()
	held := newGate()
	broker := newFake(t, func([]string) answer { held.pass(t.Context()); return answer{} })
	sink := broker.sink(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	var publishing sync.WaitGroup
	publishing.Go(func() {
		requireClass(t, sinks.Publish(ctx, sink, newMessages(t, "topic", "key", 2)), sinks.Unknown, sinks.ReasonTimeout)
	})
	<-held.entered
	withdrawn := newMessages(t, "topic", "other", 2)
	publishing.Go(func() {
		requireClass(t, sinks.Publish(ctx, sink, withdrawn), sinks.Unavailable, sinks.ReasonTimeout)
	})
	awaitQueued(t, sink, 1)
	cancel()
	publishing.Wait()
	awaitQueued(t, sink, 0)
	close(held.leave)
	last := newMessage(t, "topic", "key")
	requireClass(t, publish(t, sink, last), sinks.Acknowledged, "")
	require.Len(t, broker.seen(), 2)
	require.Equal(t, []string{last.ID}, broker.seen()[1], "what was withdrawn must not be sent")
}

// TestEndedCallIsNotSentLater ends a call while its connection is being opened.
func TestEndedCallIsNotSentLater(t *testing.T) {
	t.Parallel()
	held := newGate()
	leader, seed := newFake(t, always(answer{})), newFake(t, always(answer{}))
	leader.greeted = func() { held.pass(t.Context()) }
	seed.lead(leader.listener.Addr().String())
	sink := seed.sink(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	var publishing sync.WaitGroup
	publishing.Go(func() {
		requireClass(t, sinks.Publish(ctx, sink, newMessages(t, "topic", "key", 2)), sinks.Unavailable, sinks.ReasonTimeout)
	})
	<-held.entered
	cancel()
	publishing.Wait()
	close(held.leave)
	last := newMessage(t, "topic", "key")
	requireClass(t, publish(t, sink, last), sinks.Acknowledged, "")
	require.Equal(t, [][]string{{last.ID}}, leader.seen())
}

func TestPublishAfterClose(t *testing.T) {
	t.Parallel()
	broker := newFake(t, always(answer{}))
	sink := broker.sink(t)
	requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Acknowledged, "")
	require.NoError(t, sink.Close(t.Context()))
	requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Unavailable, sinks.ReasonClosed)
	require.Len(t, broker.seen(), 1)
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	held := newGate()
	broker := newFake(t, func([]string) answer { held.pass(t.Context()); return answer{} })
	sink := broker.sink(t)
	var publishing sync.WaitGroup
	publishing.Go(func() {
		requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Unknown, sinks.ReasonClosed)
	})
	<-held.entered
	publishing.Go(func() {
		requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Unavailable, sinks.ReasonClosed)
	})
	awaitQueued(t, sink, 1)
	require.NoError(t, sink.Close(t.Context()))
	publishing.Wait()
	close(held.leave)
	requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Unavailable, sinks.ReasonClosed)
	requireClass(t, publish(t, sink, newMessage(t, "other", "key")), sinks.Unavailable, sinks.ReasonClosed)
	require.Error(t, sink.Ping(t.Context()))
	require.NoError(t, sink.Close(t.Context()))
	require.Len(t, broker.seen(), 1)
}

func TestRequestsRespectByteLimit(t *testing.T) {
	t.Parallel()
	broker := newFake(t, always(answer{}))
	batch := newMessages(t, "topic", "key", 5)
	for i := range batch {
		batch[i].Body = make([]byte, maxRequestSize/2-1000)
	}
	batch[4].Body = make([]byte, 2*maxRequestSize)
	requireClass(t, publish(t, broker.sink(t), batch...), sinks.Acknowledged, "")
	all := ids(batch)
	require.Equal(t, [][]string{all[:2], all[2:4], all[4:]}, broker.seen())
}

// TestMissingTopicDelaysNobody also bounds what is remembered of topics.
func TestMissingTopicDelaysNobody(t *testing.T) {
	t.Parallel()
	broker := newFake(t, always(answer{}))
	sink := broker.sink(t)
	batch := append(newMessages(t, "missing", "key", 2), newMessages(t, "topic", "key", 2)...)
	for range 20 {
		outcomes := publish(t, sink, batch...)
		requireClass(t, outcomes[:2], sinks.Unavailable, sinks.ReasonTopicMissing)
		requireClass(t, outcomes[2:], sinks.Acknowledged, "")
	}
	require.LessOrEqual(t, broker.timesAsked(), 5, "a missing topic is not asked for each time")
}

func TestTopicsAreForgotten(t *testing.T) {
	t.Parallel()
	known := newTopics(nil, nil, logger())
	for i := range 5 * sweepAt {
		known.store(&kafka.MetadataResponse{Topics: []kafka.Topic{{Name: strconv.Itoa(i), Error: kafka.UnknownTopicOrPartition}}})
		for _, topic := range known.byName {
			topic.until = time.Time{}
			break
		}
		if i%sweepAt == 0 {
			for _, topic := range known.byName {
				topic.until = time.Time{}
			}
		}
	}
	require.Less(t, len(known.byName), 3*sweepAt)
}

func TestInvalidTopicIsNotAskedFor(t *testing.T) {
	t.Parallel()
	broker := newFake(t, always(answer{}))
	batch := []message.Message{newMessage(t, "", "k"), newMessage(t, "..", "k"), newMessage(t, "a b", "k"), newMessage(t, strings.Repeat("a", 250), "k")}
	requireClass(t, publish(t, broker.sink(t), batch...), sinks.Permanent, sinks.ReasonInvalid)
	require.Zero(t, broker.timesAsked())
}
