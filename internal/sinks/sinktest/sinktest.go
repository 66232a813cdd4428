// Package sinktest is the conformance suite of the sinks: what the poller
// relies on, checked for every broker against the real thing.
//
// A sink's test package implements [Broker] and [PrivateBroker] on its broker
// and calls [Run] once, from a test that is not parallel:
//
//	func TestConformance(t *testing.T) { sinktest.Run(t, newBroker(t)) }
//
// The suite first runs the cases that disturb a broker, one after the other on
// one private broker, then all others in parallel on the shared one, each with
// topics of its own. A case waits for what it needs to happen and never sleeps.
// What a broker cannot express is listed in [Features], with the reason, and
// nowhere else.
package sinktest

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

// Broker is one real broker. Its methods may be called from parallel tests;
// they end the test with t.Fatal where they cannot do what they say.
type Broker interface {
	// Features says how the broker differs from the others. It is constant.
	Features() Features

	// NewSink opens a sink on this broker. The suite closes it. The broker may
	// be down or paused at that time; a constructor does no I/O.
	NewSink(t testing.TB, options Options) sinks.Sink

	// MakeTopic makes a topic that keeps what is published to it, and returns
	// when the topic can be published to. The name is a valid one that no other
	// test uses: letters, digits and hyphens, less than 60 bytes. Where
	// the broker has partitions, the topic has several, unless options limit it.
	MakeTopic(t testing.TB, topic string, options TopicOptions)

	// Read returns all messages that the topic stores, as a consumer gets them,
	// in stored order (within a partition, if there are several). It waits
	// until there are at least atLeast of them, for 20 s at most, then
	// takes all that there are: it must not stop at atLeast, since the suite looks for
	// copies that should not exist. It is called once a topic, so it may consume.
	Read(t testing.TB, topic string, atLeast int) []StoredMessage
}

// TopicDeleter is a [Broker] that can delete a topic. A broker that is none names
// the gap topic_replaced_in_batch.
type TopicDeleter interface {
	// DeleteTopic deletes a topic of MakeTopic with all that it stores, and returns
	// when it is gone. The name may be used again.
	DeleteTopic(t testing.TB, topic string)
}

// TopicHanger is a [Broker] that can make a topic which never answers. A broker
// that is none names the gap hanging_topic.
type TopicHanger interface {
	// HangTopic makes a topic that takes what is published to it and never
	// answers, while other topics do, until the end of the test.
	HangTopic(t testing.TB, topic string)
}

// PrivateBroker is a broker of the caller's own that may be disturbed. It
// starts healthy. It demands a login, and the sinks that NewSink opens have
// one, unless the login case is a gap.
type PrivateBroker interface {
	Broker

	// Kill ends the broker's process as a crash does (SIGKILL), and returns when
	// it is gone. What it acknowledged must be there after Start.
	Kill(t testing.TB)
	// Start starts it again, on the same addresses and data, and returns when
	// its topics can be published to.
	Start(t testing.TB)
	// Pause stops the broker's process without ending it (SIGSTOP), and returns
	// when it has stopped: connections stay open, new ones may be accepted by the
	// kernel, nothing is answered.
	Pause(t testing.TB)
	// Resume undoes Pause.
	Resume(t testing.TB)
}

// Harness makes the brokers of one suite.
type Harness struct {
	// Shared is used by parallel cases and only asked for ordinary things.
	Shared Broker
	// Private starts a private broker, and stops it at the end of t. It is called
	// once, so a slow start is paid once. The broker differs from Shared only in being private.
	Private func(t *testing.T) PrivateBroker
}

// Features says what a broker can do.
type Features struct {
	// Gaps are the cases, by their names, that the broker cannot express, each
	// with the reason. A name that is no case fails the suite.
	Gaps map[string]string
	// Keyed is set if a consumer sees the message's Key (Stored.Key).
	Keyed bool
	// Missing is the reason that the sink reports for a topic that does not
	// exist: sinks.ReasonTopicMissing or sinks.ReasonUnroutable.
	Missing sinks.Reason
	// InvalidTopic is a topic that the broker can never have.
	InvalidTopic string
	// TooLarge is a size of body, in bytes, that the broker takes in no topic.
	TooLarge int
	// BatchLimit is how many bytes the broker takes in one request or record
	// batch; the suite publishes several times as much in one call, at least 4 MiB.
	// 0 means that only single messages are limited.
	BatchLimit int
	// ExtraHeaders are names of headers that the sink adds for the broker (Nats-Msg-Id).
	ExtraHeaders []string
	// FoldsNames is set if the names of headers have no case, as in HTTP: those of a
	// StoredMessage are in lower case.
	FoldsNames bool
	// NacksFull is set if the refusal of a full topic proves nothing about the message:
	// Unknown, of the route, sinks.ReasonRefused, in place of Unavailable.
	NacksFull bool
	// Connections is how many connections to the broker a sink takes in turn; 0 means 1.
	Connections int
	// Deep is how many messages of one Key the suite publishes at once, a multiple of 20; 0 means
	// 1,000. It is less where the broker of the tests takes much processor time for each.
	Deep int
	// Recovery is how soon after Start a sink that is being used works again
	// by itself; 0 means 15 s.
	Recovery time.Duration
	// Leaks are exceptions to the search for goroutines that a closed sink
	// left behind, each with the reason beside it.
	Leaks []goleak.Option
}

// Options are what a case asks of a sink. Everything else is as by default.
type Options struct {
	// PublishTimeout is the sink's own limit for one publish; 0 means its default.
	// ctx may end earlier.
	PublishTimeout time.Duration
	// WrongPassword gives the sink a login that the broker refuses. Only asked
	// of a private broker.
	WrongPassword bool
	// BytesPerSecond, if not 0, has the sink reach the broker over a link that
	// carries that many bytes a second to it, see [testenv.Proxy.Rate]. Only asked of
	// a shared broker, in the case slow_link.
	BytesPerSecond int
}

// TopicOptions limit a topic. The zero value is an ordinary topic.
type TopicOptions struct {
	// MaxMessages, if not 0, makes a topic that holds that many messages and
	// then refuses more, by itself and one by one (queue with max-length and
	// reject-publish, stream with max_msgs and discard new).
	MaxMessages int
	// MaxMessageBytes, if not 0, makes a topic that refuses a message of more
	// bytes, while the broker as a whole takes it.
	MaxMessageBytes int
}

// StoredMessage is one message as a consumer gets it.
type StoredMessage struct {
	// Key is empty if the broker is not Keyed.
	Key string
	// Headers are all headers, also what the broker carries as a property
	// (AMQP's content type as content-type), with ExtraHeaders.
	Headers map[string]string
	Body    []byte
}

// closeTimeout is how long a case gives a sink to close. A sink that has
// nothing under way needs none of it.
const closeTimeout = 10 * time.Second

// openSink opens a sink that is closed at the end of the test.
func openSink(t testing.TB, broker Broker, options Options) sinks.Sink {
	t.Helper()
	sink := broker.NewSink(t, options)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := sink.Close(ctx); err != nil {
			t.Errorf("close sink: %v", err)
		}
	})
	return sink
}

// Run runs the suite. The caller's test must not be parallel: it becomes so here, after the
// cases that must be alone.
func Run(t *testing.T, harness Harness) {
	checkGaps(t, harness.Shared.Features())
	broker := &healer{PrivateBroker: harness.Private(t)}
	t.Run("alone", func(t *testing.T) { broker.run(t, aloneCases) })
	t.Parallel()
	t.Run("private", func(t *testing.T) { broker.run(t, privateCases) })
	t.Run("shared", func(t *testing.T) {
		for _, c := range sharedCases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				skipGap(t, harness.Shared.Features(), c.name)
				c.run(t, harness.Shared)
			})
		}
	})
}

// healer remembers what was done to a broker, so that a case that fails half
// way does not fail those after it.
type healer struct {
	PrivateBroker
	down, paused bool
}

func (h *healer) Kill(t testing.TB)   { h.PrivateBroker.Kill(t); h.down = true }
func (h *healer) Start(t testing.TB)  { h.PrivateBroker.Start(t); h.down = false }
func (h *healer) Pause(t testing.TB)  { h.PrivateBroker.Pause(t); h.paused = true }
func (h *healer) Resume(t testing.TB) { h.PrivateBroker.Resume(t); h.paused = false }

// run runs cases one after the other.
func (h *healer) run(t *testing.T, cases []privateCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			skipGap(t, h.Features(), c.name)
			defer h.heal(t)
			c.run(t, h)
		})
	}
}

func (h *healer) heal(t testing.TB) {
	t.Helper()
	if h.paused {
		h.Resume(t)
	}
	if h.down {
		h.Start(t)
	}
}
