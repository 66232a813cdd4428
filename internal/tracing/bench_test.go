package tracing_test

import (
	"testing"

	"go.opentelemetry.io/otel"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/tracing"
)

// BenchmarkWithoutTraces tells what a call pays where the program has set no provider.
func BenchmarkWithoutTraces(b *testing.B) {
	spans := tracing.NewSchedules(otel.GetTracerProvider(), "orders")
	m := &message.Message{ID: "a"}
	b.ReportAllocs()
	for b.Loop() {
		ctx, span := spans.Begin(b.Context())
		spans.Mark(ctx, m, 1000)
		tracing.End(span, 1, nil)
	}
}
