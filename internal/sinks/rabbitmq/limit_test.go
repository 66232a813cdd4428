package rabbitmq

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// TestAUsersLimitOfChannels has ten routes and fewer channels than that, for all
// connections of the user together: RabbitMQ closes the connection that asks for one
// more. The sink finds out how many there are, and lives with less.
func TestAUsersLimitOfChannels(t *testing.T) {
	t.Parallel()
	server := testenv.StartRabbitMQ(t, "")
	for _, most := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			user := fmt.Sprint("few-", most)
			server.RabbitEval(fmt.Sprintf(`ok = rabbit_auth_backend_internal:add_user(<<"%[1]s">>, <<"few">>, <<"test">>),
				ok = rabbit_auth_backend_internal:set_permissions(<<"%[1]s">>, <<"/">>, <<".*">>, <<".*">>, <<".*">>, <<"test">>),
				ok = rabbit_auth_backend_internal:set_user_limits(<<"%[1]s">>, <<"{\"max-channels\":%[2]d}">>, <<"test">>).`, user, most))
			topics := make([]string, 10)
			for route := range topics {
				topics[route] = testenv.Name(t, "topic")
				declare(t, server.URL(), topics[route], nil)
			}
			sink := newSink(t, Config{URL: withLogin(t, server.URL(), user+":few@")})
			batch := make([]message.Message, 1600)
			for i := range batch {
				batch[i] = newMessage(t, "orders", topics[i%len(topics)])
			}
			acknowledged := map[string]bool{}
			left := batch
			require.Eventually(t, func() bool { // As the poller does: what is not acknowledged is published again.
				var again []message.Message
				for i, outcome := range publish(t, sink, left...) {
					if outcome.Class == sinks.Acknowledged {
						acknowledged[left[i].ID] = true
						continue
					}
					require.Contains(t, []sinks.Class{sinks.Unavailable, sinks.Unknown}, outcome.Class)
					again = append(again, left[i])
				}
				t.Log(len(left), "published,", len(again), "not acknowledged")
				left = again
				return len(left) == 0
			}, 2*time.Minute, 100*time.Millisecond)
			stored := map[string]bool{}
			for _, topic := range topics {
				for _, d := range read(t, server.URL(), topic, len(batch)/len(topics)) {
					stored[d.MessageId] = true
				}
			}
			require.Len(t, acknowledged, len(batch))
			require.Equal(t, acknowledged, stored)
			// From then on there is room for all, in turn, and for a ping. RabbitMQ's count of a
			// user's channels lags behind, so it may have let in one more, or count one that has ended;
			// that is a lesson, too, unless it is one of a burst.
			for rounds, tries := 0, 0; rounds < 5; rounds, tries = rounds+1, tries+1 {
				require.Less(t, tries, 50)
				lesson := sink.connections.limit.lesson()
				err, left := sink.Ping(t.Context()), publish(t, sink, batch...)
				if sink.connections.limit.lesson() != lesson || errors.Is(err, errTooMany) {
					rounds = -1
					continue
				}
				require.NoError(t, err)
				for _, outcome := range left {
					requireOutcome(t, outcome, sinks.Acknowledged, "")
				}
			}
		})
	}
}

// TestLimitIsLearned of refusals, once of several at a time.
func TestLimitIsLearned(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := &channelLimit{connections: 4}
	shares := func() (all []int) {
		for number := range 4 {
			share, isLimited := l.share(number)
			require.True(t, isLimited)
			all = append(all, share)
		}
		return all
	}
	_, isLimited := l.share(0)
	require.False(t, isLimited)
	first := l.begin(now)
	l.opened(8)
	require.Equal(t, 8, l.refused(first, now))
	require.Equal(t, []int{2, 2, 2, 1}, shares(), "one is left for a ping")
	l.opened(-5)
	require.Equal(t, 8, l.refused(first, now), "of the same burst: what ended with the first does not count")
	second := l.begin(now)
	require.Equal(t, 3, l.refused(second, now))
	require.Equal(t, []int{1, 1, 0, 0}, shares())
	require.True(t, l.allowsPing())
	l.opened(-3)
	require.Equal(t, 1, l.refused(l.begin(now), now))
	require.Equal(t, []int{1, 0, 0, 0}, shares())
	require.False(t, l.allowsPing())
	l.begin(now.Add(limitLasts - 1))
	require.False(t, l.allowsPing())
	l.begin(now.Add(limitLasts))
	_, isLimited = l.share(0)
	require.False(t, isLimited, "it is found out again")
}
