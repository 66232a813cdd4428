package tracing_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/delaybridge/delaybridge/delay"
)

func traceparent(span sdktrace.ReadOnlySpan) string {
	sc := span.SpanContext()
	return fmt.Sprintf("00-%s-%s-%s", sc.TraceID(), sc.SpanID(), sc.TraceFlags())
}

// TestTraces makes a span a call, whose context its messages carry, and nothing else of
// the call changes.
func TestProducer(t *testing.T) {
	t.Parallel()
	connect := queue(t)
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	client := connect(delay.WithTracerProvider(provider), delay.WithConflict(delay.Keep))
	headers := func(id string) map[string]string {
		info, err := client.Get(t.Context(), delay.Ref{ID: id})
		require.NoError(t, err)
		return info.Message.Headers
	}
	ctx, parent := provider.Tracer("test").Start(t.Context(), "business")
	own := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	_, err := client.ScheduleBatch(ctx, []delay.Request{
		{Message: delay.Message{ID: "a", Topic: "t"}, When: delay.After(time.Hour)},
		{Message: delay.Message{ID: "b", Topic: "t", Headers: own, Tags: []string{"x"}}, When: delay.After(time.Hour)},
	})
	require.NoError(t, err)
	first := recorder.Ended()[0]
	assert.Equal(t, parent.SpanContext().TraceID(), first.SpanContext().TraceID())
	assert.Equal(t, parent.SpanContext().SpanID(), first.Parent().SpanID())
	assert.Equal(t, map[string]string{"traceparent": traceparent(first)}, headers("a"))
	assert.Equal(t, own, headers("b"), "the producer's own is untouched")

	again, err := client.Schedule(ctx, delay.Message{ID: "a", Topic: "t"}, delay.After(time.Hour))
	require.NoError(t, err)
	assert.Equal(t, delay.Existing, again.Status, "another span is no other message")
	assert.Equal(t, map[string]string{"traceparent": traceparent(first)}, headers("a"))

	_, err = client.Schedule(ctx, delay.Message{ID: "c"}, delay.After(time.Hour))
	require.ErrorIs(t, err, delay.ErrInvalid)
	assert.Equal(t, codes.Error, recorder.Ended()[2].Status().Code)

	// A program without a provider hands on what it was given, and one that wants none does not.
	remote := trace.ContextWithRemoteSpanContext(t.Context(), parent.SpanContext())
	silent := connect(delay.WithTracerProvider(noop.NewTracerProvider()))
	_, err = silent.Schedule(remote, delay.Message{ID: "d", Topic: "t"}, delay.After(time.Hour))
	require.NoError(t, err)
	assert.Contains(t, headers("d")["traceparent"], parent.SpanContext().SpanID().String())
	_, err = silent.Schedule(t.Context(), delay.Message{ID: "e", Topic: "t"}, delay.After(time.Hour))
	require.NoError(t, err)
	assert.Empty(t, headers("e"))
	_, err = connect().Schedule(remote, delay.Message{ID: "f", Topic: "t"}, delay.After(time.Hour))
	require.NoError(t, err)
	assert.Empty(t, headers("f"))
	assert.Len(t, recorder.Ended(), 3)
}
