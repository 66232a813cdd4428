package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

const sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// claimed is a message with a traceparent.
func claimed(traceparent string) *message.ClaimedMessage {
	return &message.ClaimedMessage{Message: message.Message{
		ID: "a", Topic: "t", Headers: map[string]string{"traceparent": traceparent}, DueAt: time.UnixMilli(0),
	}}
}

func TestExporterFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env      map[string]string
		exports  bool
		mentions string
	}{
		"nothing":          {},
		"endpoint":         {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, exports: true},
		"traces' own":      {env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318"}, exports: true},
		"exporter":         {env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, exports: true},
		"grpc":             {env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, exports: true},
		"none":             {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}},
		"disabled":         {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}},
		"another exporter": {env: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, mentions: "zipkin"},
		"another protocol": {env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, mentions: "http/json"},
	} {
		exporter, err := exporterFor(t.Context(), func(name string) string { return c.env[name] })
		assert.Equal(t, c.exports, exporter != nil, name)
		if c.mentions != "" {
			assert.ErrorContains(t, err, c.mentions, name)
		} else {
			assert.NoError(t, err, name)
		}
		if exporter != nil {
			assert.NoError(t, exporter.Shutdown(t.Context()))
		}
	}
}

func TestTracesWithoutExporter(t *testing.T) {
	t.Parallel()
	traces, err := NewTraces(t.Context(), New("v1"), "v1", "me", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	assert.Nil(t, traces.Publishing("orders", message.NATS), "so that the poller has nothing to call")
	_, span := traces.Provider().Tracer("t").Start(t.Context(), "s")
	assert.False(t, span.IsRecording())
	require.NoError(t, traces.Stop(t.Context()))
}

// TestPublishing makes spans of what is sampled, and allocates nothing for all else.
func TestPublishing(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	traces := &Traces{ctx: t.Context(), provider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))}
	tell := traces.Publishing("orders", message.Kafka)
	began := time.UnixMilli(1000)
	report := &sinks.Report{Outcome: sinks.Failed(sinks.Unavailable, sinks.ReasonTopicMissing, errors.New("no topic")), At: began.Add(time.Second)}
	tell(claimed(sampled), began, report, 3*time.Second)
	tell(claimed(sampled[:len(sampled)-1]+"0"), began, report, 0)
	require.Len(t, recorder.Ended(), 1)
	span := recorder.Ended()[0]
	assert.Equal(t, sdktrace.Status{Code: codes.Error, Description: "unavailable: no topic"}, span.Status())
	assert.Equal(t, time.Second, span.EndTime().Sub(span.StartTime()))
	values := map[string]string{}
	for _, a := range span.Attributes() {
		values[string(a.Key)] = a.Value.String()
	}
	assert.Equal(t, "topic_missing", values["error.type"])
	assert.Equal(t, "3000", values["delaybridge.lateness_ms"])
}

func TestPublishingCostsNothingWithoutContext(t *testing.T) { //nolint:paralleltest // It counts allocations.
	traces := &Traces{ctx: t.Context(), provider: sdktrace.NewTracerProvider()}
	tell := traces.Publishing("orders", message.Kafka)
	report := &sinks.Report{Outcome: sinks.Acked()}
	plain := &message.ClaimedMessage{Message: message.Message{ID: "a", Headers: map[string]string{"a": "b"}}}
	assert.Zero(t, testing.AllocsPerRun(100, func() { tell(plain, time.Time{}, report, 0) }))
}

// TestTracesNeverBlock: where the collector hangs, spans are dropped and counted, and
// the end is not delayed beyond its deadline.
func TestTracesNeverBlock(t *testing.T) { //nolint:paralleltest // It sets the environment.
	asked, hang := make(chan struct{}, 100), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-hang
	}))
	defer server.Close()
	defer close(hang)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
	metrics := New("v1")
	traces, err := NewTraces(t.Context(), metrics, "v1", "me", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	tell := traces.Publishing("orders", message.NATS)
	report := &sinks.Report{Outcome: sinks.Acked(), At: time.Now()}
	for range 25 {
		tell(claimed(sampled), time.Now(), report, 0)
	}
	<-asked
	count := func(result string) int { return int(testutil.ToFloat64(traces.line.spans.WithLabelValues(result))) }
	assert.Equal(t, 15, count(spansDropped))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, traces.Stop(ctx))
	assert.Equal(t, 10, count(spansFailed))
	assert.Zero(t, count(spansExported))
}
