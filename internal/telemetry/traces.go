package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/tracing"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// Traces makes the bridge's spans and exports them, as the standard variables of the
// environment say, OTEL_EXPORTER_OTLP_ENDPOINT and the others. Without them it costs
// nothing. It owns the goroutine of the exporter, from its making until Stop.
type Traces struct {
	ctx      context.Context // of spans without a parent; it never ends
	provider *sdktrace.TracerProvider
	line     *spanLine
}

// NewTraces reads the environment. Version and instance are the process' own. The error
// is a variable that has a wrong value.
func NewTraces(ctx context.Context, m *Metrics, version, instance string, logger *slog.Logger) (*Traces, error) {
	t := &Traces{ctx: context.WithoutCancel(ctx)}
	exporter, err := exporterFor(ctx, os.Getenv)
	if err != nil || exporter == nil {
		return t, err
	}
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("delaybridge"), semconv.ServiceVersion(version), semconv.ServiceInstanceID(instance)),
		resource.WithFromEnv(), // The last one wins.
	)
	if err != nil {
		return t, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	logger = logger.With("event", "trace")
	// The library reports its own errors to the process' one handler.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("traces", "err", err) }))
	t.line = newSpanLine(ctx, exporter, m, logger)
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithSpanProcessor(t.line))
	logger.Info("traces are exported")
	return t, nil
}

// exporterFor returns nil if traces are not exported.
func exporterFor(ctx context.Context, env func(string) string) (sdktrace.SpanExporter, error) {
	first := func(names ...string) string {
		for _, name := range names {
			if value := env(name); value != "" {
				return value
			}
		}
		return ""
	}
	kind := env("OTEL_TRACES_EXPORTER")
	isAsked := kind != "" || first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") != ""
	switch {
	case !isAsked, kind == "none", env("OTEL_SDK_DISABLED") == "true":
		return nil, nil //nolint:nilnil // No exporter is no error.
	case kind != "" && kind != "otlp":
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: allowed are otlp and none", kind)
	}
	switch protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol {
	case "", "http/protobuf":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: allowed are http/protobuf and grpc", protocol)
	}
}

// Provider makes spans; without an exporter, these only pass on their parent's context.
func (t *Traces) Provider() trace.TracerProvider {
	if t.provider == nil {
		return noop.NewTracerProvider()
	}
	return t.provider
}

// Stop exports the waiting spans, until ctx ends at the latest. It may be called twice.
func (t *Traces) Stop(ctx context.Context) error {
	if t.provider == nil {
		return nil
	}
	defer context.AfterFunc(ctx, t.line.cut)()
	if err := t.provider.Shutdown(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("export the last traces: %w", err)
	}
	return nil
}

// Publishing returns what makes the spans of a queue's published messages; nil if
// there are none. A message gets one each time that it was given to the sink, if it
// carries the context of a sampled span: in the trace of that span, and linked to it.
func (t *Traces) Publishing(queue string, sink message.SinkType) func(*message.ClaimedMessage, time.Time, *sinks.Report, time.Duration) {
	if t.provider == nil {
		return nil
	}
	const verb = "publish"
	tracer := t.provider.Tracer(tracing.Scope)
	always := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		semconv.MessagingSystemKey.String(string(sink)), semconv.MessagingOperationName(verb),
		semconv.MessagingOperationTypeSend, tracing.QueueKey.String(queue),
	)}
	return func(claimed *message.ClaimedMessage, began time.Time, report *sinks.Report, lateness time.Duration) {
		ctx, ok := tracing.Parent(t.ctx, &claimed.Message)
		if !ok {
			return
		}
		_, span := tracer.Start(ctx, verb+" "+queue, append(slices.Clip(always),
			trace.WithTimestamp(began), trace.WithLinks(trace.LinkFromContext(ctx)), trace.WithAttributes(
				semconv.MessagingDestinationName(claimed.Topic), semconv.MessagingMessageID(claimed.ID),
				semconv.MessagingMessageBodySize(len(claimed.Body)), tracing.DueAt(claimed.DueAt),
				tracing.AttemptKey.Int(claimed.Attempts.Begun+1), tracing.LatenessMsKey.Int64(lateness.Milliseconds()),
			))...)
		if report.Class != sinks.Acknowledged {
			span.SetAttributes(semconv.ErrorTypeKey.String(string(report.Reason)))
			span.SetStatus(codes.Error, fmt.Sprintf("%s: %v", report.Class, report.Err))
		}
		span.End(trace.WithTimestamp(report.At))
	}
}
