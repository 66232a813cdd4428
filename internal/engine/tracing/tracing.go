// Package tracing makes the spans of calls that schedule, and passes their contexts to
// the messages as the header traceparent.
//
// It uses only OpenTelemetry's API, since the SDK imports it: the program decides
// whether there are spans, and where they go.
package tracing

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Scope is the name of our instrumentation.
const Scope = "github.com/delaybridge/delaybridge"

// Attributes that the conventions for messaging have no name for.
const (
	QueueKey      = attribute.Key("delaybridge.queue")
	DueAtKey      = attribute.Key("delaybridge.due_at")
	StatusKey     = attribute.Key("delaybridge.status")
	FailedKey     = attribute.Key("delaybridge.failed_messages")
	AttemptKey    = attribute.Key("delaybridge.attempt")
	LatenessMsKey = attribute.Key("delaybridge.lateness_ms")
)

// w3c is the only format that is written and read, whatever propagators the program
// has: baggage may hold data that should not stay in Redis for days.
var w3c propagation.TraceContext

// Schedules makes the spans of calls that schedule messages in one queue. A nil one
// makes none, and leaves messages alone.
type Schedules struct {
	tracer trace.Tracer
	name   string
	start  []trace.SpanStartOption
}

// NewSchedules returns nil for a nil provider.
func NewSchedules(provider trace.TracerProvider, queue string) *Schedules {
	if provider == nil {
		return nil
	}
	const verb = "schedule"
	return &Schedules{
		tracer: provider.Tracer(Scope), name: verb + " " + queue,
		start: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
			semconv.MessagingSystemKey.String("delaybridge"), semconv.MessagingOperationName(verb),
			semconv.MessagingOperationTypeCreate, QueueKey.String(queue),
		)},
	}
}

// Begin starts the span of a call; mark its messages with the returned context.
func (s *Schedules) Begin(ctx context.Context) (context.Context, trace.Span) {
	if s == nil {
		return ctx, noop.Span{}
	}
	return s.tracer.Start(ctx, s.name, s.start...)
}

// Mark gives the message the context of the call as its traceparent. It does nothing
// if there is no context, if the producer has set a traceparent, or if the message
// would exceed its limits.
func (s *Schedules) Mark(ctx context.Context, m *message.Message, maxSize int) {
	const most = 2 // headers
	if s == nil || !trace.SpanContextFromContext(ctx).IsValid() || carrier(m.Headers).Get(traceparent) != "" || len(m.Headers)+most > message.MaxHeaders {
		return
	}
	marked := message.Message{Headers: make(map[string]string, len(m.Headers)+most)}
	w3c.Inject(ctx, carrier(marked.Headers))
	if m.Size()+marked.Size() > maxSize {
		return
	}
	maps.Copy(marked.Headers, m.Headers) // The producer's own tracestate stays.
	m.Headers = marked.Headers
}

// Caller returns the context of a request with the span context of its sender, from
// the header.
func Caller(ctx context.Context, header http.Header) context.Context {
	return w3c.Extract(ctx, propagation.HeaderCarrier(header))
}

// Parent is ctx with the span context that the message carries; ok is false if it has
// none that is sampled.
func Parent(ctx context.Context, m *message.Message) (parent context.Context, ok bool) {
	if len(m.Headers) == 0 || carrier(m.Headers).Get(traceparent) == "" {
		return ctx, false
	}
	ctx = w3c.Extract(ctx, carrier(m.Headers))
	return ctx, trace.SpanContextFromContext(ctx).IsSampled()
}

const traceparent = "traceparent"

// carrier reads and writes a message's headers. A program that uses the carrier of
// net/http writes them with a capital letter.
type carrier map[string]string

// Get implements [propagation.TextMapCarrier].
func (c carrier) Get(key string) string {
	if value := c[key]; value != "" {
		return value
	}
	switch key {
	case traceparent:
		return c["Traceparent"]
	case "tracestate":
		return c["Tracestate"]
	default:
		return ""
	}
}

// Set implements [propagation.TextMapCarrier].
func (c carrier) Set(key, value string) { c[key] = value }

// Keys implements [propagation.TextMapCarrier].
func (c carrier) Keys() []string { return slices.Collect(maps.Keys(c)) }

// Item is the result for one message of a call.
type Item struct {
	Topic, ID, Status string
	DueAt             time.Time
	Err               error
}

// End ends the span of a call with n messages.
func End(span trace.Span, n int, item func(i int) Item) {
	if !span.IsRecording() {
		return
	}
	defer span.End()
	var first Item
	failed := 0
	for i := range n {
		it := item(i)
		if it.Err == nil {
			continue
		}
		if failed++; failed == 1 {
			first = it
		}
	}
	if n == 1 {
		first = item(0)
		span.SetAttributes(semconv.MessagingDestinationName(first.Topic), semconv.MessagingMessageID(first.ID), StatusKey.String(first.Status))
		if !first.DueAt.IsZero() {
			span.SetAttributes(DueAt(first.DueAt))
		}
	} else {
		span.SetAttributes(semconv.MessagingBatchMessageCount(n), FailedKey.Int(failed))
	}
	switch {
	case failed == 0:
	case n == 1:
		span.SetStatus(codes.Error, first.Err.Error())
	default:
		span.SetStatus(codes.Error, fmt.Sprintf("%d of %d messages, the first: %v", failed, n, first.Err))
	}
}

// DueAt returns the attribute of a due time, in the format of the header delay-due-at.
func DueAt(at time.Time) attribute.KeyValue {
	return DueAtKey.String(at.UTC().Format(message.TimeFormat))
}
