package kafka

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

func TestNullKeyAndEmptyValue(t *testing.T) {
	t.Parallel()
	broker := &testBroker{config: Config{Brokers: testenv.Kafka(t)}}
	topic := testenv.Name(t, "topic")
	broker.makeTopic(t, topic, 1)
	batch := newMessages(t, topic, "", 2)
	batch[1].Key, batch[1].Body = "key", nil
	began := time.Now()
	outcomes := publish(t, newSink(t, broker.config), batch...)
	requireClass(t, outcomes, sinks.Acknowledged, "")
	require.Equal(t, "partition 0 offset 0", outcomes[0].Place.String())
	require.Equal(t, "partition 0 offset 1", outcomes[1].Place.String())
	stored := broker.readAll(t, topic, 2)[0]
	require.False(t, stored[0].keyed, "no Key is a null key")
	require.True(t, stored[1].keyed)
	require.True(t, stored[1].valued, "an empty body is an empty value, not null")
	require.Empty(t, stored[1].Body)
	require.WithinRange(t, stored[0].at, began.Truncate(time.Millisecond), time.Now())
}

// TestCompactedTopicRefusesNullKey has the real broker blame single records.
func TestCompactedTopicRefusesNullKey(t *testing.T) {
	t.Parallel()
	broker := &testBroker{config: Config{Brokers: testenv.Kafka(t)}}
	topic := testenv.Name(t, "topic")
	broker.makeTopic(t, topic, 1, kafka.ConfigEntry{ConfigName: "cleanup.policy", ConfigValue: "compact"})
	batch := newMessages(t, topic, "", 40)
	for i := range batch {
		if i%4 != 0 {
			batch[i].Key = batch[i].ID
		}
	}
	var stored []string
	for i, outcome := range publish(t, newSink(t, broker.config), batch...) {
		if i%4 == 0 {
			requireClass(t, []sinks.Outcome{outcome}, sinks.Permanent, sinks.ReasonInvalid)
			continue
		}
		requireClass(t, []sinks.Outcome{outcome}, sinks.Acknowledged, "")
		stored = append(stored, batch[i].ID)
	}
	var read []string
	for _, record := range broker.readAll(t, topic, len(stored))[0] {
		read = append(read, record.Key)
	}
	require.Equal(t, stored, read)
}

// TestDeletedTopic deletes a topic in use and makes it again.
func TestDeletedTopic(t *testing.T) {
	t.Parallel()
	broker := &testBroker{config: Config{Brokers: testenv.Kafka(t)}}
	topic, sink := testenv.Name(t, "topic"), newSink(t, Config{Brokers: testenv.Kafka(t)})
	broker.makeTopic(t, topic, 2)
	requireClass(t, publish(t, sink, newMessage(t, topic, "key")), sinks.Acknowledged, "")
	broker.DeleteTopic(t, topic)
	require.Eventually(t, func() bool {
		return publish(t, sink, newMessage(t, topic, "key"))[0].Reason == sinks.ReasonTopicMissing
	}, patience, 10*time.Millisecond)
	broker.makeTopic(t, topic, 2)
	require.Eventually(t, func() bool {
		return publish(t, sink, newMessage(t, topic, "key"))[0].Class == sinks.Acknowledged
	}, time.Minute, 10*time.Millisecond)
}

// TestTLSAndLogins runs a broker that demands a login, and checks a certificate where it gets one; TestLink's demands both.
func TestTLSAndLogins(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	server := testenv.StartKafka(t, strings.Replace(tlsProperties(t, certs), "client.auth=required", "client.auth=requested", 1)+bearerProperties+neverKilled)
	login := func(mechanism, password string) *SASL {
		return &SASL{Mechanism: mechanism, Username: testUser, Password: secret.Value(password)}
	}
	broker := &testBroker{config: Config{
		Brokers: []string{server.Addr()}, TLS: &tlsclient.Files{CAFile: certs.CAFile}, SASL: login("plain", testPassword),
	}}
	makeScramUser(t, broker)
	topic := testenv.Name(t, "topic")
	broker.MakeTopic(t, topic, sinktest.TopicOptions{})

	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		config := broker.config
		if config.SASL = login(mechanism, testPassword); mechanism != "plain" {
			config.TLS = &tlsclient.Files{CAFile: certs.CAFile, CertFile: certs.ClientCert, KeyFile: certs.ClientKey}
		}
		sink := newSink(t, config)
		awaitPing(t, sink)
		requireClass(t, publishOnceConnected(t, sink, newMessages(t, topic, "", 3)...), sinks.Acknowledged, "")
		config.SASL = login(mechanism, "wrong")
		requireRefused(t, config, topic)
	}
	require.Len(t, broker.Read(t, topic, 9), 9)

	other, unsupported := broker.config, broker.config
	other.TLS = &tlsclient.Files{CAFile: testenv.NewCerts(t).CAFile}
	requireRefused(t, other, topic)
	unsupported.SASL = nil
	requireRefused(t, unsupported, topic)
	findings := newSink(t, unsupported).Check(t.Context(), sinks.Plan{Topics: []string{topic}})
	require.NotEmpty(t, findings)
	require.Contains(t, findings[0].What, "does it demand a login")
	t.Run("rotated", func(t *testing.T) { rotatedLogins(t, broker.config, topic) })
}

func requireRefused(t *testing.T, config Config, topic string) {
	t.Helper()
	sink := newSink(t, config)
	awaitReason(t, sink, topic, sinks.ReasonAuth)
	err := sink.Ping(t.Context())
	require.Error(t, err)
	require.NotContains(t, err.Error(), testPassword)
}

// awaitReason publishes until that is why nothing can be: a busy machine may be too slow to be refused in time.
func awaitReason(t *testing.T, sink *Sink, topic string, reason sinks.Reason) {
	t.Helper()
	require.Eventually(t, func() bool {
		outcome := publish(t, sink, newMessage(t, topic, ""))[0]
		assert.Equal(t, sinks.Unavailable, outcome.Class, outcome.Err)
		return outcome.Reason == reason
	}, patience, 20*time.Millisecond)
}

// tlsProperties make the one listener of the server demand TLS, a client
// certificate and a login. Its keystore is one PEM file of key and certificate.
func tlsProperties(t *testing.T, certs testenv.Certs) string {
	t.Helper()
	key, err := os.ReadFile(certs.ServerKey)
	require.NoError(t, err)
	certificate, err := os.ReadFile(certs.ServerCert)
	require.NoError(t, err)
	keystore := filepath.Join(t.TempDir(), "keystore.pem")
	require.NoError(t, os.WriteFile(keystore, append(key, certificate...), 0o600))
	return loginProperties + fmt.Sprintf(`
listener.security.protocol.map=PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location=%s
ssl.truststore.type=PEM
ssl.truststore.location=%s
listener.name.plaintext.ssl.client.auth=required
`, keystore, certs.CAFile)
}

// makeScramUser gives the test user SCRAM credentials too.
func makeScramUser(t *testing.T, broker *testBroker) {
	t.Helper()
	broker.administer(t, func(ctx context.Context, client *kafka.Client) {
		// One request for each: Kafka takes a user once in a request only.
		for mechanism, hash := range map[kafka.ScramMechanism]func() hash.Hash{
			kafka.ScramMechanismSha256: sha256.New, kafka.ScramMechanismSha512: sha512.New,
		} {
			const iterations = 4096
			salt := []byte("salt")
			salted, err := pbkdf2.Key(hash, testPassword, salt, iterations, hash().Size())
			require.NoError(t, err)
			response, err := client.AlterUserScramCredentials(ctx, &kafka.AlterUserScramCredentialsRequest{
				Upsertions: []kafka.UserScramCredentialsUpsertion{
					{Name: testUser, Mechanism: mechanism, Iterations: iterations, Salt: salt, SaltedPassword: salted},
				},
			})
			require.NoError(t, err)
			require.NoError(t, response.Results[0].Error)
		}
	})
}
