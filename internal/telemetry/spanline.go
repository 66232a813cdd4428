package telemetry

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// spanLine is where ended spans wait for the exporter. Adding one never waits: if
// the line is full, the span is dropped and counted. The library's own line follows,
// which would drop spans silently, so it is never allowed to fill up.
type spanLine struct {
	sdktrace.SpanProcessor // the library's line

	most    int64
	waiting atomic.Int64 // in line, or being exported
	spans   *prometheus.CounterVec
	// cut cancels the running export, and all that would follow.
	cut context.CancelFunc
}

func newSpanLine(ctx context.Context, exporter sdktrace.SpanExporter, m *Metrics, logger *slog.Logger) *spanLine {
	l := &spanLine{
		most:  sdktrace.DefaultMaxQueueSize,
		spans: counters("spans_total", "Spans of traces: exported, failed, or dropped because too many waited.", "result"),
	}
	if n, err := strconv.ParseInt(os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE"), 10, 32); err == nil && n > 0 {
		l.most = n
	}
	for _, result := range []string{spansExported, spansFailed, spansDropped} {
		l.spans.WithLabelValues(result)
	}
	m.registry.MustRegister(l.spans)
	counting := &countingExporter{SpanExporter: exporter, line: l, logger: logger}
	counting.ctx, l.cut = context.WithCancel(context.WithoutCancel(ctx))
	l.SpanProcessor = sdktrace.NewBatchSpanProcessor(counting, sdktrace.WithMaxQueueSize(int(l.most)))
	return l
}

// The results for a span.
const (
	spansExported = "exported"
	spansFailed   = "failed"
	spansDropped  = "dropped"
)

// OnEnd implements [sdktrace.SpanProcessor].
func (l *spanLine) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if l.waiting.Add(1) > l.most {
		l.left(1, spansDropped)
		return
	}
	l.SpanProcessor.OnEnd(s)
}

func (l *spanLine) left(n int, result string) {
	l.waiting.Add(-int64(n))
	l.spans.WithLabelValues(result).Add(float64(n))
}

// countingExporter reports to the line the results of its spans.
type countingExporter struct {
	sdktrace.SpanExporter

	line    *spanLine
	ctx     context.Context // of the exports
	trouble Trouble         // used by ExportSpans, of which one runs at a time
	logger  *slog.Logger
}

// ExportSpans implements [sdktrace.SpanExporter]. A failure is reported here and nowhere else.
func (e *countingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)() //nolint:contextcheck // Whichever of the two ends first counts.
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		e.line.left(len(spans), spansFailed)
		if e.trouble.News(err.Error()) {
			e.logger.Warn("traces not exported", "spans", len(spans), "err", err)
		}
		return nil
	}
	e.line.left(len(spans), spansExported)
	if e.trouble.Over() {
		e.logger.Info("traces exported again")
	}
	return nil
}
