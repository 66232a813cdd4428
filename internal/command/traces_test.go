package command

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// The context that a traced message carries.
const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	traceparent = "00-" + traceID + "-b7ad6b7169203331-01"
)

// receiver is a collector that takes traces by gRPC.
type receiver struct {
	collector.UnimplementedTraceServiceServer

	spans chan *otlp.Span
}

// Export implements [collector.TraceServiceServer].
func (r *receiver) Export(ctx context.Context, sent *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, resource := range sent.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				select {
				case r.spans <- span:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// receive starts a collector, until the test ends.
func receive(t *testing.T, options ...grpc.ServerOption) (addr string, spans <-chan *otlp.Span) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	server, r := grpc.NewServer(options...), &receiver{spans: make(chan *otlp.Span, 10)}
	collector.RegisterTraceServiceServer(server, r)
	var serving sync.WaitGroup
	serving.Go(func() { assert.NoError(t, server.Serve(l)) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return l.Addr().String(), r.spans
}

// traced is an environment in which a bridge exports spans by gRPC, soon.
func traced(endpoint string, more ...string) []string {
	return append(append(os.Environ(),
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint, "OTEL_BSP_SCHEDULE_DELAY=10"), more...)
}

// TestTracesByGRPC: a collector that speaks gRPC gets a bridge's spans, with and without TLS.
func TestTracesByGRPC(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	tls, err := credentials.NewServerTLSFromFile(certs.ServerCert, certs.ServerKey)
	require.NoError(t, err)
	for scheme, c := range map[string]struct {
		server []grpc.ServerOption
		bridge []string
	}{
		"http":  {},
		"https": {[]grpc.ServerOption{grpc.Creds(tls)}, []string{"OTEL_EXPORTER_OTLP_CERTIFICATE=" + certs.CAFile}},
	} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			addr, spans := receive(t, c.server...)
			url, topic := testenv.NATS(t), testenv.Name(t, "t")
			f := setupWith(t, 1, url, freeAddr(t))
			_ = subscribe(t, url, topic)
			p := start(t, traced(scheme+"://"+addr, c.bridge...), "run", "--config", f.file)
			f.ok("schedule", "--topic", topic, "--in", "0s", "--id", "untraced", "x")
			f.ok("schedule", "--topic", topic, "--in", "0s", "--id", "traced", "--header", "traceparent="+traceparent, "x")
			select {
			case span := <-spans:
				assert.Equal(t, "publish orders", span.GetName())
				assert.Equal(t, traceID, hex.EncodeToString(span.GetTraceId()))
			case <-time.After(commandTimeout):
				require.FailNow(t, "no span has come", p.output())
			}
			p.signal(syscall.SIGTERM)
			assert.Equal(t, exitDone, p.wait(), p.output())
			assert.Empty(t, spans, "one message is traced")
		})
	}
}

// TestTracesWithoutCollector: where nobody takes the spans, the bridge publishes and ends as
// ever, keeps as many spans as it may, and counts the others as dropped.
func TestTracesWithoutCollector(t *testing.T) {
	t.Parallel()
	const messages, kept = 10, 3
	url, topic, admin := testenv.NATS(t), testenv.Name(t, "t"), freeAddr(t)
	f := setupWith(t, 1, url, admin)
	got := subscribe(t, url, topic)
	env := traced("http://"+freeAddr(t), fmt.Sprint("OTEL_BSP_MAX_QUEUE_SIZE=", kept), "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=1", "OTEL_EXPORTER_OTLP_TIMEOUT=600000")
	p := start(t, env, "run", "--config", f.file)
	var lines strings.Builder
	for i := range messages {
		_, _ = fmt.Fprintf(&lines, `{"id": "m-%d", "topic": %q, "in": "0s", "headers": {"traceparent": %q}, "body": "x"}`+"\n", i, topic, traceparent)
	}
	o := bridge(t, lines.String(), "schedule", "--config", f.file, "--queue", "orders", "--batch", "-")
	require.Equal(t, exitDone, o.code, "%+v", o)
	for range messages {
		_, err := got.NextMsg(commandTimeout)
		require.NoError(t, err)
	}
	dropped := fmt.Sprintf("delaybridge_spans_total{result=\"dropped\"} %d\n", messages-kept)
	require.Eventually(t, func() bool { return strings.Contains(page(t, admin, "/metrics"), dropped) }, commandTimeout, 10*time.Millisecond)
	assert.Contains(t, page(t, admin, "/metrics"), `delaybridge_spans_total{result="exported"} 0`)

	p.signal(syscall.SIGTERM)
	assert.Equal(t, exitDone, p.wait(), p.output())
	assert.Contains(t, p.output(), "traces not exported")
}

// page is what the bridge serves.
func page(t *testing.T, addr, path string) string {
	t.Helper()
	response, err := http.Get("http://" + addr + path) //nolint:noctx // local
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(text)
}
