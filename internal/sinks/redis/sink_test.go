package redis_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/redis"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	const url = "redis://127.0.0.1:1"
	addrs := []string{"127.0.0.1:1"}
	for want, config := range map[string]redis.Config{
		"publish_timeout: -1s":       {URL: url, PublishTimeout: -time.Second},
		"give one of url":            {},
		"give one of url, addrs":     {URL: url, Addrs: addrs},
		"only one of master":         {Sentinels: addrs},
		"addrs: \"a\" is no address": {Addrs: []string{"a"}},
		"url: has the scheme":        {URL: "http://127.0.0.1"},
		"url: has no host":           {URL: "redis://"},
		"url: has the option":        {URL: url + "?max_retries=3"},
		"url: has the database":      {URL: url + "/x"},
		"user: the URL holds":        {URL: "redis://a:hidden@127.0.0.1", User: "b"},
		"url: is no valid URL":       {URL: "redis://a:hid%zzden@127.0.0.1"},
	} {
		_, err := config.Open(nil)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hid")
	}
}

// A real server's refusals: each is of the route or of the whole, and nothing is stored.
func TestRefusals(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	b := broker{options: at(server.Addr())}
	topic := testenv.Name(t, "topic")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	client := b.client(t)
	do := func(args ...any) {
		t.Helper()
		require.NoError(t, client.Do(t.Context(), args...).Err())
	}
	do("SET", "plain", "value")
	do("ACL", "SETUSER", "bridge", "on", ">"+password, "~"+topic, "~plain", "+xadd", "+ping", "+hello", "+client|setname")
	login := b
	login.options.Username, login.options.Password = "bridge", password
	sink := login.newSink(t, redis.Config{})

	denied := sinktest.NewMessage(t, "denied", "")
	outcomes := sinktest.Publish(t, sink, sinktest.NewMessage(t, "plain", "a"), sinktest.NewMessage(t, "plain", "a"), denied, sinktest.NewMessage(t, topic, "a"))
	sinktest.RequireOutcome(t, outcomes[0], sinks.Unavailable, sinks.ReasonRefused)
	sinktest.RequireOutcome(t, outcomes[1], sinks.Unavailable, sinks.ReasonRefused)
	sinktest.RequireOutcome(t, outcomes[2], sinks.Unavailable, sinks.ReasonAuth)
	sinktest.RequireOutcome(t, outcomes[3], sinks.Acknowledged, "")
	require.Regexp(t, `^entry \d+-\d+$`, outcomes[3].Place.String())
	for _, outcome := range outcomes {
		require.False(t, outcome.Whole)
	}
	for _, c := range []struct {
		set, unset []any
		reason     sinks.Reason
	}{
		{[]any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"}, sinks.ReasonBroker},
		{[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}, sinks.ReasonBroker},
	} {
		do(c.set...)
		outcome := sinktest.Publish(t, sink, sinktest.NewMessage(t, topic, ""))[0]
		sinktest.RequireOutcome(t, outcome, sinks.Unavailable, c.reason)
		require.True(t, outcome.Whole)
		do(c.unset...)
		sinktest.RequireOutcome(t, sinktest.Publish(t, sink, sinktest.NewMessage(t, topic, ""))[0], sinks.Acknowledged, "")
	}
	require.Len(t, b.Read(t, topic, 3), 3)
}

// A server at its maxmemory takes nothing, and says so of each message.
func TestFullServer(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	b := broker{options: at(server.Addr())}
	topic := testenv.Name(t, "topic")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	sink, client := b.newSink(t, redis.Config{}), b.client(t)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for _, outcome := range sinktest.Publish(t, sink, sinktest.NewMessage(t, topic, "a"), sinktest.NewMessage(t, topic, "a"), sinktest.NewMessage(t, topic, "")) {
		sinktest.RequireOutcome(t, outcome, sinks.Unavailable, sinks.ReasonFull)
		require.True(t, outcome.Whole)
	}
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	sinktest.RequireOutcome(t, sinktest.Publish(t, sink, sinktest.NewMessage(t, topic, "a"))[0], sinks.Acknowledged, "")
	require.Len(t, b.Read(t, topic, 1), 1)
}

// What Redis has run and whose answer is lost is Unknown, and is not sent again: not
// where the connection is cut, and not where the answer is late.
func TestALostAnswerIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	b := broker{options: at(server.Addr())}
	topic := testenv.Name(t, "topic")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	const timeout = 5 * time.Second
	for _, isCut := range []bool{true, false} {
		t.Run(fmt.Sprintf("cut %t", isCut), func(t *testing.T) {
			t.Parallel()
			proxy, topic := testenv.NewProxy(t, server.Addr()), testenv.Name(t, "topic")
			b.MakeTopic(t, topic, sinktest.TopicOptions{})
			through := broker{options: at(proxy.Addr())}
			sink := through.newSink(t, redis.Config{PublishTimeout: timeout})
			sinktest.RequireOutcome(t, sinktest.Publish(t, sink, sinktest.NewMessage(t, topic, ""))[0], sinks.Acknowledged, "")
			proxy.SwallowReplies(true)
			batch := []message.Message{sinktest.NewMessage(t, topic, "a"), sinktest.NewMessage(t, topic, "a"), sinktest.NewMessage(t, topic, "b"), sinktest.NewMessage(t, topic, "")}
			began := time.Now()
			var publishing sync.WaitGroup
			var outcomes []sinks.Outcome
			publishing.Go(func() { outcomes = sinktest.Publish(t, sink, batch...) })
			b.Read(t, topic, 4)
			if isCut {
				proxy.Cut()
			}
			publishing.Wait()
			require.Less(t, time.Since(began), 2*timeout, "the publish timeout is waited for once")
			for i, outcome := range outcomes {
				class := sinks.Unknown
				if i == 1 {
					class = sinks.Unavailable // It was never handed over.
				}
				require.Equal(t, class, outcome.Class, "%v", outcome.Err)
				require.True(t, outcome.Whole)
			}
			proxy.SwallowReplies(false)
			require.Eventually(t, func() bool {
				return sinktest.Publish(t, sink, sinktest.NewMessage(t, topic, ""))[0].Class == sinks.Acknowledged
			}, time.Minute, 10*time.Millisecond)
			require.Len(t, b.Read(t, topic, 5), 5)
		})
	}
}

// What waits for a connection when the call ends was not handed over, and is not later:
// the server's greeting comes when the call is over.
func TestNothingIsHandedOverAfterTheCall(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	b := broker{options: at(server.Addr())}
	topic := testenv.Name(t, "topic")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	sink := b.newSink(t, redis.Config{})
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	patient := make(chan []sinks.Outcome, 1)
	go func() { patient <- sinktest.Publish(t, sink, sinktest.NewMessage(t, topic, "b")) }()
	outcomes := sinks.Publish(ctx, sink, []message.Message{sinktest.NewMessage(t, topic, "a"), sinktest.NewMessage(t, topic, "a")})
	server.Resume()
	for _, outcome := range outcomes {
		sinktest.RequireOutcome(t, outcome, sinks.Unavailable, sinks.ReasonTimeout)
	}
	sinktest.RequireOutcome(t, (<-patient)[0], sinks.Acknowledged, "")
	require.Len(t, b.Read(t, topic, 1), 1)
}
