package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/tracing"
)

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// under is a context with the span context of a traceparent.
func under(t *testing.T, traceparent string) context.Context {
	t.Helper()
	m := &message.Message{Headers: map[string]string{"traceparent": traceparent, "tracestate": "a=1"}}
	ctx, _ := tracing.Parent(t.Context(), m)
	require.True(t, trace.SpanContextFromContext(ctx).IsValid())
	return ctx
}

func TestMark(t *testing.T) {
	t.Parallel()
	spans := tracing.NewSchedules(noop.NewTracerProvider(), "orders")
	full := map[string]string{}
	for i := range message.MaxHeaders {
		full[fmt.Sprint("h", i)] = "v"
	}
	for name, c := range map[string]struct {
		spans         *tracing.Schedules
		under         context.Context
		headers, want map[string]string
		body          int
	}{
		"no header":       {spans: spans, under: under(t, sampled), want: map[string]string{"traceparent": sampled, "tracestate": "a=1"}},
		"unsampled":       {spans: spans, under: under(t, unsampled), want: map[string]string{"traceparent": unsampled, "tracestate": "a=1"}},
		"others":          {spans: spans, under: under(t, sampled), headers: map[string]string{"a": "b"}, want: map[string]string{"a": "b", "traceparent": sampled, "tracestate": "a=1"}},
		"the producer's":  {spans: spans, under: under(t, sampled), headers: map[string]string{"traceparent": "mine"}, want: map[string]string{"traceparent": "mine"}},
		"as net/http has": {spans: spans, under: under(t, sampled), headers: map[string]string{"Traceparent": "mine"}, want: map[string]string{"Traceparent": "mine"}},
		"no context":      {spans: spans, under: t.Context()},
		"off":             {under: under(t, sampled)},
		"no room for one": {spans: spans, under: under(t, sampled), headers: full, want: full},
		"too large":       {spans: spans, under: under(t, sampled), body: 940},
		"just fits":       {spans: spans, under: under(t, sampled), body: 1000 - 11 - 55 - 10 - 3 - 2, want: map[string]string{"traceparent": sampled, "tracestate": "a=1"}},
	} {
		given := len(c.headers)
		m := &message.Message{ID: "id", Headers: c.headers, Body: make([]byte, c.body)}
		c.spans.Mark(c.under, m, 1000)
		assert.Equal(t, c.want, m.Headers, name)
		assert.Len(t, c.headers, given, "%s: the producer's own map is left alone", name)
	}
}

func TestParent(t *testing.T) {
	t.Parallel()
	for traceparent, want := range map[string]bool{"": false, "rubbish": false, unsampled: false, sampled: true} {
		for _, name := range []string{"traceparent", "Traceparent"} {
			ctx, ok := tracing.Parent(t.Context(), &message.Message{Headers: map[string]string{name: traceparent}})
			assert.Equal(t, want, ok, traceparent)
			assert.Equal(t, want, trace.SpanContextFromContext(ctx).IsSampled())
		}
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	spans := tracing.NewSchedules(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)), "orders")
	items := []tracing.Item{
		{Topic: "t", ID: "a", Status: "created", DueAt: time.UnixMilli(1500)},
		{Topic: "t", ID: "b", Err: errors.New("it is full")},
	}
	_, span := spans.Begin(t.Context())
	tracing.End(span, 1, func(i int) tracing.Item { return items[i] })
	_, span = spans.Begin(t.Context())
	tracing.End(span, 2, func(i int) tracing.Item { return items[i] })

	ended := recorder.Ended()
	require.Len(t, ended, 2)
	assert.Equal(t, "schedule orders", ended[0].Name())
	assert.Equal(t, trace.SpanKindProducer, ended[0].SpanKind())
	assert.Equal(t, strings.Fields(`delaybridge.due_at=1970-01-01T00:00:01.500Z delaybridge.queue=orders delaybridge.status=created
		messaging.destination.name=t messaging.message.id=a messaging.operation.name=schedule messaging.operation.type=create
		messaging.system=delaybridge`), list(ended[0].Attributes()))
	assert.Equal(t, codes.Unset, ended[0].Status().Code)
	assert.Equal(t, sdktrace.Status{Code: codes.Error, Description: "1 of 2 messages, the first: it is full"}, ended[1].Status())
	assert.Subset(t, list(ended[1].Attributes()), []string{"messaging.batch.message_count=2", "delaybridge.failed_messages=1"})
}

func list(attributes []attribute.KeyValue) (texts []string) {
	set := attribute.NewSet(attributes...)
	for _, a := range set.ToSlice() {
		texts = append(texts, string(a.Key)+"="+a.Value.String())
	}
	return texts
}
