package app

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// receiver is a collector of traces.
type receiver struct {
	mu    sync.Mutex
	spans map[string]*otlp.Span // by message and attempt
	about []*common.KeyValue
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var sent collector.ExportTraceServiceRequest
	body, err := io.ReadAll(request.Body)
	if err != nil || proto.Unmarshal(body, &sent) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range sent.GetResourceSpans() {
		r.about = resource.GetResource().GetAttributes()
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				of := span.GetAttributes()
				r.spans[attribute(of, "messaging.message.id").GetStringValue()] = span
			}
		}
	}
}

func attribute(list []*common.KeyValue, name string) *common.AnyValue {
	for _, a := range list {
		if a.GetKey() == name {
			return a.GetValue()
		}
	}
	return nil
}

// TestTraces follows messages from the producer's span through a bridge and NATS: each
// publish has a span in the trace of the schedule, linked to it, when that is sampled;
// and the last of them are exported when the bridge ends.
func TestTraces(t *testing.T) { //nolint:paralleltest // It sets the environment.
	got := &receiver{spans: map[string]*otlp.Span{}}
	server := httptest.NewServer(got)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_SERVICE_NAME", "my-bridge")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "600000") // Only the end exports.

	f := newFleet(t, testenv.Redis(t), 2)
	f.join("a", f.redis)
	f.held("a")
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	producer, err := delay.NewClient(f.rdb, "orders", delay.WithPrefix(f.prefix), delay.WithTracerProvider(provider))
	require.NoError(t, err)
	schedule := func(client *delay.Client, m delay.Message) {
		_, err := client.Schedule(t.Context(), m, delay.After(20*time.Millisecond))
		require.NoError(t, err)
	}
	none := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	unsampled, err := delay.NewClient(f.rdb, "orders", delay.WithPrefix(f.prefix), delay.WithTracerProvider(none))
	require.NoError(t, err)
	schedule(f.client, delay.Message{ID: "untraced", Topic: f.topic})
	schedule(unsampled, delay.Message{ID: "unsampled", Topic: f.topic})
	schedule(producer, delay.Message{ID: "other", Topic: f.topic})
	schedule(producer, delay.Message{ID: "traced", Topic: f.topic, Body: []byte("SECRET")})

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 4 {
		m, err := f.got.NextMsgWithContext(ctx)
		require.NoError(t, err)
		assert.Equal(t, m.Header.Get("delay-id") != "untraced", m.Header.Get("traceparent") != "", m.Header.Get("delay-id"))
	}
	f.leave("a")

	require.Contains(t, got.spans, "traced")
	assert.Len(t, got.spans, 2, "what the producer samples, and nothing else")
	assert.Equal(t, "my-bridge", attribute(got.about, "service.name").GetStringValue())
	scheduled, published := recorder.Ended()[1], got.spans["traced"]
	traceID, spanID := scheduled.SpanContext().TraceID(), scheduled.SpanContext().SpanID()
	assert.Equal(t, traceID[:], published.GetTraceId())
	assert.Equal(t, spanID[:], published.GetParentSpanId())
	require.Len(t, published.GetLinks(), 1)
	assert.Equal(t, spanID[:], published.GetLinks()[0].GetSpanId())
	assert.Equal(t, "publish orders", published.GetName())
	assert.Equal(t, otlp.Span_SPAN_KIND_CLIENT, published.GetKind())
	for name, want := range map[string]string{
		"messaging.system": "nats", "messaging.operation.name": "publish", "messaging.operation.type": "send",
		"messaging.destination.name": f.topic, "delaybridge.queue": "orders",
	} {
		assert.Equal(t, want, attribute(published.GetAttributes(), name).GetStringValue(), name)
	}
	assert.EqualValues(t, 1, attribute(published.GetAttributes(), "delaybridge.attempt").GetIntValue())
	assert.EqualValues(t, 6, attribute(published.GetAttributes(), "messaging.message.body.size").GetIntValue())
	assert.GreaterOrEqual(t, published.GetEndTimeUnixNano(), published.GetStartTimeUnixNano())
	assert.NotContains(t, published.String(), "SECRET")
}
