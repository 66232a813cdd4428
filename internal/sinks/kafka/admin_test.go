package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestCreateTopics makes what is missing, leaves alone what exists, and logs in.
func TestCreateTopics(t *testing.T) {
	t.Parallel()
	broker := newPrivateBroker(t, neverKilled)
	old, fresh := testenv.Name(t, "old"), testenv.Name(t, "fresh")
	broker.makeTopic(t, old, 1)
	for range 2 {
		require.NoError(t, CreateTopics(t.Context(), broker.config, logger(), 3, old, fresh))
	}
	broker.administer(t, func(ctx context.Context, client *kafka.Client) {
		answer, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{old, fresh}})
		require.NoError(t, err)
		require.Len(t, answer.Topics[0].Partitions, map[string]int{old: 1, fresh: 3}[answer.Topics[0].Name])
		require.Len(t, answer.Topics[1].Partitions, map[string]int{old: 1, fresh: 3}[answer.Topics[1].Name])
	})
}

// TestDialer logs in as readers do.
func TestDialer(t *testing.T) {
	t.Parallel()
	broker := newPrivateBroker(t, neverKilled)
	dialer, err := broker.config.Dialer()
	require.NoError(t, err)
	conn, err := dialer.DialContext(t.Context(), "tcp", broker.config.Brokers[0])
	require.NoError(t, err)
	_, err = conn.Controller()
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	wrong := broker.config
	login := *wrong.SASL
	login.Password = secret.Value("wrong")
	wrong.SASL = &login
	dialer, err = wrong.Dialer()
	require.NoError(t, err)
	_, err = dialer.DialContext(t.Context(), "tcp", broker.config.Brokers[0])
	require.ErrorIs(t, err, kafka.SASLAuthenticationFailed)
}

// TestTopicsThatABrokerLearnsOf: topics are made only when every broker knows them.
func TestTopicsThatABrokerLearnsOf(t *testing.T) {
	t.Parallel()
	produced := func([]string) answer { return answer{} }
	controller, other := newFake(t, produced), newFake(t, produced)
	controller.lose("")
	controller.lead(other.leader)
	config := Config{Brokers: []string{controller.listener.Addr().String()}, PublishTimeout: time.Minute}
	made := make(chan error, 1)
	go func() { made <- CreateTopics(t.Context(), config, logger(), 1, "there", "missing") }()
	require.Eventually(t, func() bool { return other.timesAsked() > 1 || len(made) > 0 }, time.Minute, time.Millisecond)
	require.Empty(t, made)
	other.lose("")
	require.NoError(t, <-made)
}

// TestTopicsWithoutAController waits until a broker knows the controller, which makes them.
func TestTopicsWithoutAController(t *testing.T) {
	t.Parallel()
	produced := func([]string) answer { return answer{} }
	cut, joins := newFake(t, produced), newFake(t, produced)
	cut.elect(-1)
	joins.elect(-1)
	config := Config{Brokers: []string{cut.listener.Addr().String(), joins.listener.Addr().String()}, PublishTimeout: time.Minute}
	made := make(chan error, 1)
	go func() { made <- CreateTopics(t.Context(), config, logger(), 1, "there") }()
	require.Eventually(t, func() bool { return joins.timesAsked() > 1 || len(made) > 0 }, time.Minute, time.Millisecond)
	require.Empty(t, made)
	joins.elect(1)
	require.NoError(t, <-made)
}
