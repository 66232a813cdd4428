package webhook_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/webhook"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// file makes one of the test.
func file(t testing.TB, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

// plain is an endpoint without TLS.
func plain(t testing.TB, url string) webhook.Endpoint {
	t.Helper()
	return webhook.Endpoint{URL: url, Secrets: file(t, secret), AllowHTTP: true}
}

func open(t testing.TB, config webhook.Config) *webhook.Sink {
	t.Helper()
	sink, err := webhook.New(config, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, sink.Close(ctx))
	})
	return sink
}

// answering is a sink whose endpoint orders is a server that answers so.
func answering(t testing.TB, answer http.HandlerFunc) *webhook.Sink {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return open(t, webhook.Config{Endpoints: map[string]webhook.Endpoint{"orders": plain(t, server.URL)}})
}

// What an answer means does not depend on who sends it: a redirect is not followed, and a
// refused signature waits.
func TestAnswers(t *testing.T) {
	t.Parallel()
	var status, asked atomic.Int64
	var followed atomic.Bool
	sink := answering(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path == "/elsewhere" {
			followed.Store(true)
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(int(status.Load()))
	})
	for code, want := range map[int]sinks.Outcome{
		200: {Class: sinks.Acknowledged}, 202: {Class: sinks.Acknowledged}, 204: {Class: sinks.Acknowledged}, 299: {Class: sinks.Acknowledged},
		301: sinks.Failed(sinks.Unavailable, sinks.ReasonUnroutable, nil), 307: sinks.Failed(sinks.Unavailable, sinks.ReasonUnroutable, nil),
		401: sinks.Failed(sinks.Unavailable, sinks.ReasonAuth, nil), 422: sinks.Failed(sinks.Retryable, sinks.ReasonRefused, nil),
		500: sinks.Failed(sinks.Retryable, sinks.ReasonRefused, nil), 501: sinks.Failed(sinks.Unknown, sinks.ReasonBroker, nil),
	} {
		status.Store(int64(code))
		asked.Store(0)
		outcome := sinktest.Publish(t, sink, sinktest.NewMessage(t, "orders", ""))[0]
		sinktest.RequireOutcome(t, outcome, want.Class, want.Reason)
		require.EqualValues(t, 1, asked.Load(), "sent once, whatever the answer: %d", code)
		require.False(t, outcome.Whole)
	}
	require.False(t, followed.Load())
}

// An endpoint that asks for a pause gets none of what comes within it, and no other endpoint waits.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" && asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(server.Close)
	sink := open(t, webhook.Config{Endpoints: map[string]webhook.Endpoint{
		"busy": plain(t, server.URL+"/busy"), "other": plain(t, server.URL+"/other"),
	}})
	sinktest.RequireOutcome(t, sinktest.Publish(t, sink, sinktest.NewMessage(t, "busy", ""))[0], sinks.Unavailable, sinks.ReasonThrottled)
	refused := 0
	require.Eventually(t, func() bool {
		outcomes := sinktest.Publish(t, sink, sinktest.NewMessage(t, "busy", ""), sinktest.NewMessage(t, "other", ""))
		sinktest.RequireOutcome(t, outcomes[1], sinks.Acknowledged, "")
		if outcomes[0].Class == sinks.Acknowledged {
			return true
		}
		sinktest.RequireOutcome(t, outcomes[0], sinks.Unavailable, sinks.ReasonThrottled)
		refused++
		return false
	}, time.Minute, 20*time.Millisecond)
	require.Positive(t, refused)
	require.EqualValues(t, 2, asked.Load(), "nothing was sent within the pause")
}

// Each answer is read up to a limit: one that never ends, that is slow, or whose headers are
// large holds nobody up.
func TestAttacksOfAnEndpoint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		class  sinks.Class
	}{
		"a giant answer": {func(w http.ResponseWriter, r *http.Request) {
			for block := make([]byte, 64<<10); r.Context().Err() == nil; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}, sinks.Acknowledged},
		"a slow answer": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, sinks.Acknowledged},
		"giant headers": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Giant", strings.Repeat("x", 1<<20))
		}, sinks.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.class, sinktest.Publish(t, answering(t, c.answer), sinktest.NewMessage(t, "orders", ""))[0].Class)
		})
	}
}

// A producer can make no request but the one that is meant: no header of its own takes the
// place of one of the bridge's, or makes two requests of one.
func TestAttacksOfAProducer(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	var got atomic.Pointer[http.Header]
	sink := answering(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		got.Store(&r.Header)
		body, err := io.ReadAll(r.Body)
		if err != nil || Verify(secret, r.Header, body, time.Now()) != nil {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	for name, value := range map[string]string{
		"X-Split": "a\r\nwebhook-signature: v1,forged", "X-Feed": "a\nb", "X-Null": "a\x00b", "X-Bad": "a\xff",
		"webhook-id": "forged", "Webhook-Signature": "v1,forged", "WEBHOOK-TIMESTAMP": "1", "host": "internal", "Content-Length": "0",
		"Transfer-Encoding": "chunked", "Connection": "close", "Authorization": "Bearer forged", "Cookie": "a=b",
		"Proxy-Authorization": "Basic Zm9yZ2Vk", "X-Forwarded-For": "127.0.0.1", "Expect": "100-continue", "Upgrade": "websocket",
		"a b": "c", "a:b": "c", "a\r\nb": "c", "(comment)": "c", "ü": "c",
	} {
		m := sinktest.NewMessage(t, "orders", "")
		m.Headers = map[string]string{name: value}
		outcome := sinktest.Publish(t, sink, m)[0]
		sinktest.RequireOutcome(t, outcome, sinks.Permanent, sinks.ReasonInvalid)
		require.NotContains(t, outcome.Err.Error(), "forged")
	}
	for _, topic := range []string{"http://169.254.169.254/", "../orders", "orders/../admin", "Orders", "orders\r\n", "missing.example.com"} {
		sinktest.RequireOutcome(t, sinktest.Publish(t, sink, sinktest.NewMessage(t, topic, ""))[0], sinks.Permanent, sinks.ReasonInvalid)
	}
	sinktest.RequireOutcome(t, sinktest.Publish(t, sink, sinktest.NewMessage(t, "missing", ""))[0], sinks.Unavailable, sinks.ReasonTopicMissing)
	require.Zero(t, asked.Load())

	// This header has net/http send a request again that it believes to have no body, and
	// this body looks like the head of another request.
	m := sinktest.NewMessage(t, "orders", "käse")
	m.Headers = map[string]string{"Idempotency-Key": "a", "content-type": "text/plain", "X-Text": "grüße\tund"}
	m.Body = []byte("\r\n\r\nPOST /hooks HTTP/1.1\r\nwebhook-signature: v1,forged\r\n\r\n")
	sinktest.RequireOutcome(t, sinktest.Publish(t, sink, m)[0], sinks.Acknowledged, "")
	require.EqualValues(t, 1, asked.Load())
	require.Equal(t, []string{"text/plain", "grüße\tund", "käse", "a"}, []string{
		got.Load().Get("Content-Type"), got.Load().Get("X-Text"), got.Load().Get("delay-key"), got.Load().Get("Idempotency-Key"),
	})
}

// What net/http would send again by itself is sent once: a request without a body, on a
// connection that was used before and ends without an answer.
func TestALostAnswerIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	sink := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) > 1 {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}
	})
	sinktest.RequireOutcome(t, sinktest.Publish(t, sink, sinktest.NewMessage(t, "orders", ""))[0], sinks.Acknowledged, "")
	m := sinktest.NewMessage(t, "orders", "")
	m.Body, m.Headers = nil, map[string]string{"Idempotency-Key": "a"}
	sinktest.RequireOutcome(t, sinktest.Publish(t, sink, m)[0], sinks.Unknown, sinks.ReasonConnection)
	require.EqualValues(t, 2, asked.Load())
}

// Each secret of the file signs, also one that is added while the sink runs.
func TestSecretsRotate(t *testing.T) {
	t.Parallel()
	const next = "whsec_bmV4dG5leHRuZXh0bmV4dG5leHRuZXh0"
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	var got atomic.Pointer[http.Header]
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got.Store(&r.Header) }))
	t.Cleanup(server.Close)
	endpoint := plain(t, server.URL)
	endpoint.Authorization = file(t, "Bearer one\n")
	sink := open(t, webhook.Config{Endpoints: map[string]webhook.Endpoint{"orders": endpoint}})
	m := sinktest.NewMessage(t, "orders", "")
	post := func() http.Header {
		t.Helper()
		sinktest.RequireOutcome(t, sinktest.Publish(t, sink, m)[0], sinks.Acknowledged, "")
		return *got.Load()
	}
	first := post()
	require.NoError(t, Verify(secret, first, m.Body, time.Now()))
	require.Error(t, Verify(next, first, m.Body, time.Now()))
	require.Error(t, Verify(secret, first, m.Body, time.Now().Add(time.Hour)))
	require.Error(t, Verify(secret, first, []byte("another"), time.Now()))
	require.Equal(t, m.UID(), first.Get("webhook-id"))
	require.Equal(t, "Bearer one", first.Get("Authorization"))

	seed := "whsk_" + base64.StdEncoding.EncodeToString(private.Seed())
	require.NoError(t, os.WriteFile(endpoint.Secrets, []byte("# old and new\n"+secret+"\n"+next+"\n"+seed+"\n"), 0o600))
	require.NoError(t, os.WriteFile(endpoint.Authorization, []byte("Bearer two"), 0o600))
	require.Eventually(t, func() bool {
		h := post()
		return Verify(next, h, m.Body, time.Now()) == nil && h.Get("Authorization") == "Bearer two"
	}, time.Minute, 50*time.Millisecond)
	both := post()
	require.NoError(t, Verify(secret, both, m.Body, time.Now()))
	signatures := strings.Split(both.Get("webhook-signature"), " ")
	require.Len(t, signatures, 3)
	asymmetric, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(signatures[2], "v1a,"))
	require.NoError(t, err)
	require.True(t, ed25519.Verify(public, []byte(both.Get("webhook-id")+"."+both.Get("webhook-timestamp")+"."+string(m.Body)), asymmetric))

	// A file that went wrong changes nothing.
	require.NoError(t, os.WriteFile(endpoint.Secrets, []byte("whsec_"), 0o600))
	require.NoError(t, Verify(next, post(), m.Body, time.Now()))
}

// The example of the specification's own libraries.
func TestSignatureOfTheSpecification(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	header.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	header.Set("webhook-timestamp", "1614265330")
	header.Set("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	require.NoError(t, Verify(secret, header, []byte(`{"test": 2432232314}`), time.Unix(1614265330, 0)))
}

// The example of the documentation in Python takes what the sink sends, and nothing else.
func TestVerifyInPython(t *testing.T) {
	t.Parallel()
	python := testenv.Program(t, "python3")
	var got atomic.Pointer[http.Header]
	sink := answering(t, func(_ http.ResponseWriter, r *http.Request) { got.Store(&r.Header) })
	m := sinktest.NewMessage(t, "orders", "")
	sinktest.RequireOutcome(t, sinktest.Publish(t, sink, m)[0], sinks.Acknowledged, "")
	headers := map[string]string{}
	for name, values := range *got.Load() {
		headers[strings.ToLower(name)] = values[0]
	}
	verify := func(body string) string {
		t.Helper()
		input, err := json.Marshal(map[string]any{"secret": secret, "headers": headers, "body": body})
		require.NoError(t, err)
		const program = `import json, sys
from verify import verify
call = json.load(sys.stdin)
print(verify(call["secret"], call["headers"], call["body"].encode()))`
		command := exec.CommandContext(t.Context(), python, "-B", "-c", program)
		command.Dir, command.Stdin = "testdata", bytes.NewReader(input)
		answer, err := command.Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(answer))
	}
	require.Equal(t, "True", verify(string(m.Body)))
	require.Equal(t, "False", verify("another"))
	headers["webhook-timestamp"] = "1614265330"
	require.Equal(t, "False", verify(string(m.Body)))
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := plain(t, "https://example.com/hooks")
	with := func(change func(*webhook.Endpoint)) webhook.Config {
		endpoint := good
		change(&endpoint)
		return webhook.Config{Endpoints: map[string]webhook.Endpoint{"orders": endpoint}}
	}
	at := func(url string) webhook.Config {
		return with(func(e *webhook.Endpoint) { e.URL, e.AllowHTTP = url, false })
	}
	secrets := func(content string) webhook.Config {
		return with(func(e *webhook.Endpoint) { e.Secrets = file(t, content) })
	}
	for want, config := range map[string]webhook.Config{
		"endpoints: at least one":                    {},
		"requests: 257, allowed are 1 to 256":        {Endpoints: map[string]webhook.Endpoint{"orders": good}, Requests: 257},
		"publish_timeout: -1s":                       {Endpoints: map[string]webhook.Endpoint{"orders": good}, PublishTimeout: -time.Second},
		"endpoints.orders.url: has the scheme \"\"":  at(""),
		"endpoints.orders.url: has the scheme \"ftp": at("ftp://example.com"),
		"has the scheme http, whose messages":        at("http://example.com"),
		"endpoints.orders.url: has no host":          at("https:///hooks"),
		"endpoints.orders.url: has the port":         at("https://example.com:0/"),
		"endpoints.orders.url: holds a login":        at("https://a:hidden@example.com/"),
		"endpoints.orders.url: has a fragment":       at("https://example.com/#a"),
		"endpoints.orders.url: is no valid URL":      at("https://a:hid%zzden@example.com/"),
		"endpoints.orders: read secrets":             with(func(e *webhook.Endpoint) { e.Secrets = "/missing" }),
		"0 secrets, allowed are 1 to 8":              secrets("# none\n\n"),
		"9 secrets, allowed are 1 to 8":              secrets(strings.Repeat(secret+"\n", 9)),
		"line 2: begins neither with whsec_":         secrets("# hidden\nhidden"),
		"line 1: is not base64":                      secrets("whsec_hidden!"),
		"line 1: has 4 bytes, allowed are 24 to 64":  secrets("whsec_aGlkZA=="),
		"line 1: has 4 bytes, a private key":         secrets("whsk_aGlkZA=="),
		"must be one line, with a value":             with(func(e *webhook.Endpoint) { e.Authorization = file(t, "Bearer a\nhidden: b") }),
		"tls: read ca_file":                          {Endpoints: map[string]webhook.Endpoint{"orders": good}, TLS: &tlsclient.Files{CAFile: "/missing"}},
	} {
		_, err := webhook.New(config, nil)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "hid")
	}
}

// A large body takes longer than the publish timeout, which does not run while the link takes bytes.
func TestALargeMessageOnASlowLink(t *testing.T) {
	t.Parallel()
	const timeout, bytesPerSecond = 4 * time.Second, 100_000
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	t.Cleanup(server.Close)
	proxy := testenv.NewProxy(t, strings.TrimPrefix(server.URL, "http://"))
	proxy.Rate(bytesPerSecond)
	sink := open(t, webhook.Config{
		Endpoints:      map[string]webhook.Endpoint{"orders": plain(t, fmt.Sprintf("http://%s/", proxy.Addr()))},
		PublishTimeout: timeout,
	})
	m := sinktest.NewMessage(t, "orders", "")
	m.Body = make([]byte, 960<<10)
	began := time.Now()
	sinktest.RequireOutcome(t, sinktest.Publish(t, sink, m)[0], sinks.Acknowledged, "")
	require.Greater(t, time.Since(began), timeout, "the link is not slow")
}
