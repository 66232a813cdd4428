package sqs_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/linktest"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/internal/sinks/sqs"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// One thing is wrong at a time. Nothing is sent.
func TestCheck(t *testing.T) {
	t.Parallel()
	good := map[string]string{"MaximumMessageSize": "1048576", "MessageRetentionPeriod": "345600", "DelaySeconds": "0", "RedrivePolicy": "{}"}
	plan := sinks.Plan{Topics: []string{"orders"}, MaxMessage: 960 << 10, Again: time.Minute}
	with := func(name, value string) map[string]string {
		attributes := maps.Clone(good)
		attributes[name] = value
		return attributes
	}
	certs := testenv.NewCerts(t)
	look := func(a *answers, attributes map[string]string, plan sinks.Plan) []string {
		t.Helper()
		if a.attributes == nil {
			a.attributes = func(w http.ResponseWriter, _ string) bool {
				_ = json.NewEncoder(w).Encode(map[string]any{"Attributes": attributes})
				return true
			}
		}
		server := linktest.NewHTTPS(t, certs, false, a)
		found := openSink(t, server.URL, func(c *sqs.Config) { c.TLS = &tlsclient.Files{CAFile: certs.CAFile} }).Check(t.Context(), plan)
		require.Empty(t, a.sends())
		return sinktest.Told(found)
	}
	require.Empty(t, look(&answers{}, good, plan))
	require.Equal(t, []string{"W sqs_message_size"}, look(&answers{}, with("MaximumMessageSize", "262144"), plan))
	require.Equal(t, []string{"W sqs_retention"}, look(&answers{}, with("MessageRetentionPeriod", "3600"), plan))
	require.Equal(t, []string{"W sqs_delay"}, look(&answers{}, with("DelaySeconds", "5"), plan))
	require.Equal(t, []string{"N sqs_redrive"}, look(&answers{}, with("RedrivePolicy", ""), plan))
	require.Equal(t, []string{"N sqs_kms"}, look(&answers{}, with("KmsMasterKeyId", "alias/orders"), plan))
	again := plan
	again.Again = 6 * time.Minute
	require.Empty(t, look(&answers{}, good, again), "a standard queue drops no copies anyway")
	again.Topics = []string{"orders.fifo"}
	require.Equal(t, []string{"W sqs_duplicates"}, look(&answers{}, good, again))
	wrong := plan
	wrong.Topics = []string{"order.timeout"}
	require.Equal(t, []string{"E sqs_queue"}, look(&answers{}, good, wrong))
	require.Equal(t, []string{"E sqs_queue"}, look(&answers{ask: refuse(400, "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")}, good, plan))
	require.Equal(t, []string{"E sqs_denied"}, look(&answers{ask: refuse(403, "AccessDenied", "")}, good, plan))
	require.Equal(t, []string{"E sqs_login"}, look(&answers{ask: refuse(403, "InvalidClientTokenId", "")}, good, plan))
	require.Equal(t, []string{"E sqs_unreachable"}, look(&answers{ask: refuse(503, "ServiceUnavailable", "")}, good, plan))
	require.Equal(t, []string{"N sqs_hidden"}, look(&answers{attributes: refuse(403, "AccessDenied", "")}, good, plan))

	require.Equal(t, []string{"E sqs_unreachable"}, sinktest.Told(openSink(t, "https://127.0.0.1:"+testenv.Port(t), nil).Check(t.Context(), plan)))
	stranger := linktest.NewHTTPS(t, certs, false, &answers{})
	require.Equal(t, []string{"E sqs_login"}, sinktest.Told(openSink(t, stranger.URL, nil).Check(t.Context(), plan)))
}

// The emulator has the attributes that the check reads, too.
func TestCheckOfAQueue(t *testing.T) {
	t.Parallel()
	b := newBroker(t, testenv.SQS(t))
	name := testenv.Name(t, "orders")
	b.makeQueue(t, name)
	sink := openSink(t, b.address, nil)
	plan := sinks.Plan{Topics: []string{name, name + "-missing"}}
	require.Equal(t, []string{"W sqs_plain", "N sqs_redrive", "E sqs_queue"}, sinktest.Told(sink.Check(t.Context(), plan)))
}
