package api_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// repeated is a body that is made while it is read: a beginning, one part again and again,
// and an end.
func repeated(begin, part, end string, size int) io.Reader {
	parts := io.LimitReader(&endless{text: strings.Repeat(part, 1<<16/len(part))}, int64(size/len(part)*len(part)))
	return io.MultiReader(strings.NewReader(begin), parts, strings.NewReader(end))
}

type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (n int, err error) {
	n = copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

// TestBodiesAreCountedWhileRead: what would take many times its size in memory is refused
// with less than that, and the answer says why. It measures, so nothing runs beside it.
func TestBodiesAreCountedWhileRead(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	s := newScene(t, scenery{})
	const size, mostAllocated = 23 << 20, 8 << 20
	for name, c := range map[string]struct{ path, begin, part, end, field, says string }{
		"empty messages":  {":batch", `{"messages": [{}`, ",{}", "]}", "messages", "messages has more than 1000 items"},
		"nulls":           {":batch", `{"messages": [0`, ",0", "]}", "messages", "messages has more than 1000 items"},
		"headers":         {":batch", `{"messages": [{"headers": {"a":""`, `,"a":""`, "}}]}", "", "more than 256000 names and values"},
		"unknown":         {":batch", `{"a":0`, `,"b":0`, "}", "", "more than 256000 names and values"},
		"tags of one":     {"", `{"tags": [""`, `,""`, "]}", "", "more than 1000 names and values"},
		"lists in lists":  {"", `[`, `[`, "]", "", "more than 1000 names and values"},
		"filter of a job": {":cancel", `{"filter": {"a":0`, `,"b":0`, "}}", "", "more than 1000 names and values"},
	} {
		var before, after runtime.MemStats
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/queues/"+s.queue.Name()+"/messages"+c.path, repeated(c.begin, c.part, c.end, size))
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		runtime.ReadMemStats(&before)
		s.api.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		answer{t, w.Code, w.Result().Header, w.Body.Bytes()}.refused(http.StatusBadRequest, "invalid")
		assert.Contains(t, w.Body.String(), c.says, name)
		if c.field != "" {
			assert.Contains(t, w.Body.String(), `"field":"`+c.field+`"`, name)
		}
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(mostAllocated), name)
	}
}

// TestTheLargestBatch: what has as much as may be is taken.
func TestTheLargestBatch(t *testing.T) {
	t.Parallel()
	if testenv.IsRaced {
		t.Skip("the race detector makes it take longer than a call may; make test runs it without, too")
	}
	s := newScene(t, scenery{})
	headers := map[string]string{}
	for i := range 62 {
		headers[fmt.Sprint("h", i)] = `a, "b" [{: \`
	}
	messages := make([]map[string]any, 1000)
	for i := range messages {
		messages[i] = map[string]any{
			"id": fmt.Sprint("m", i), "key": "k", "topic": "t", "headers": headers, "body": "x", "tags": strings.Fields("a b c d e f g h"),
			"at": "2031-01-01T00:00:00Z", "spread": "1h", "late": map[string]string{"after": "1h", "then": "drop"}, "conflict": "keep",
		}
	}
	out := s.call("POST", "/queues/QUEUE/messages:batch", map[string]any{"messages": messages}).is(http.StatusOK)
	for _, r := range out["results"].([]any) {
		require.Equal(t, "created", r.(map[string]any)["status"], "%v", r)
	}
	s.call("POST", "/queues/QUEUE/messages", `{"topic": "t", "in": "1h", "body": "`+strings.Repeat(`,:[{\"`, 1000)+`"}`).is(http.StatusCreated)
}

// unfinishedCall is a call whose body has begun to be read, and is not there as a whole.
type unfinishedCall struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	rest string
}

// begin makes a call, and waits until the server asks for its body.
func (s *scene) begin(t *testing.T, body string, headers ...string) *unfinishedCall {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	var more strings.Builder
	for i := 0; i < len(headers); i += 2 {
		more.WriteString(headers[i] + ": " + headers[i+1] + "\r\n")
	}
	_, err = fmt.Fprintf(conn, "POST /api/v1/queues/%s/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\nExpect: 100-continue\r\n%s\r\n", s.queue.Name(), len(body), more.String())
	require.NoError(t, err)
	u := &unfinishedCall{t, conn, bufio.NewReader(conn), body[1:]}
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	line, err := u.in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
	_, err = u.in.ReadString('\n')
	require.NoError(t, err)
	_, err = io.WriteString(conn, body[:1])
	require.NoError(t, err)
	return u
}

// answer is that of a call whose rest is sent, or is not.
func (u *unfinishedCall) answer(send bool) answer {
	u.t.Helper()
	if send {
		_, err := io.WriteString(u.conn, u.rest)
		require.NoError(u.t, err)
	}
	response, err := http.ReadResponse(u.in, nil)
	require.NoError(u.t, err)
	var content bytes.Buffer
	_, err = content.ReadFrom(response.Body)
	require.NoError(u.t, err)
	require.NoError(u.t, response.Body.Close())
	return answer{u.t, response.StatusCode, response.Header, content.Bytes()}
}

// TestUnfinishedBodiesStopNobody: a call takes a place when its body is there. As many as
// are served at once have not ended, and others are answered before they do.
func TestUnfinishedBodiesStopNobody(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: threeRoles})
	const body = `{"topic": "t", "in": "1h"}`
	var begun []*unfinishedCall
	for range 64 {
		begun = append(begun, s.begin(t, body, bearer(producerToken)...))
	}
	s.call("GET", "/queues/QUEUE", nil, bearer(operatorToken)...).is(http.StatusOK)
	s.call("POST", "/queues/QUEUE/messages", body, bearer(producerToken)...).is(http.StatusCreated)
	for _, u := range begun {
		u.answer(true).is(http.StatusCreated)
	}
}

// TestSlowBody has an end, and takes nothing from others meanwhile.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.api.SetBodyTimeout(time.Millisecond)
	u := s.begin(t, `{"topic": "t"}`)
	u.answer(false).refused(http.StatusRequestTimeout, "invalid")
	_, err := u.in.ReadByte()
	require.Error(t, err, "the connection is closed")
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestBytesInFlight: the bytes that a caller has sent are bounded, and those of all.
func TestBytesInFlight(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: producerToken + " producer\nother-producer-1 producer\n"})
	s.api.SetBytes(2000, 1000)
	body := `{"topic": "t", "in": "1h", "body": "` + strings.Repeat("b", 900) + `"}`
	put := func(token string) answer { return s.call("POST", "/queues/QUEUE/messages", body, bearer(token)...) }
	first := s.begin(t, body, bearer(producerToken)...)
	_, err := io.WriteString(first.conn, first.rest[:500])
	require.NoError(t, err)
	first.rest = first.rest[500:]
	require.Eventually(t, func() bool { small, _, _ := s.api.Bytes(); return small > 500 }, patience, tick)
	refused := put(producerToken)
	refused.refused(http.StatusTooManyRequests, "rate_limited")
	assert.NotEmpty(t, refused.header.Get("Retry-After"))
	put("other-producer-1").is(http.StatusCreated)
	first.answer(true).is(http.StatusCreated)
	put(producerToken).is(http.StatusCreated)
	small, _, _ := s.api.Bytes()
	assert.Zero(t, small)
}

// TestLargeBodies wait for each other, each as a whole.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: producerToken + " producer\nother-producer-1 producer\n"})
	s.api.SetBodyTimeout(patience)
	first := s.begin(t, strings.Repeat(" ", 23<<20), bearer(producerToken)...) // The caller's share has no room for more.
	_, err := io.WriteString(first.conn, first.rest[:2<<20])
	require.NoError(t, err)
	require.Eventually(t, func() bool { _, large, _ := s.api.Bytes(); return large > 0 }, patience, tick)
	body := `{"topic": "t", "in": "1h", "body": "` + strings.Repeat("b", 5<<18) + `"}`
	second := make(chan answer, 1)
	go func() { second <- s.call("POST", "/queues/QUEUE/messages", body, bearer(producerToken)...) }()
	require.Eventually(t, func() bool { _, _, waiting := s.api.Bytes(); return waiting == 1 }, patience, tick)
	assert.Equal(t, "body", s.call("POST", "/queues/QUEUE/messages", body, bearer("other-producer-1")...).refused(http.StatusBadRequest, "invalid"))
	s.call("POST", "/queues/QUEUE/messages", `{"topic": "t", "in": "1h"}`, bearer(producerToken)...).is(http.StatusCreated)
	require.NoError(t, first.conn.Close())
	assert.Equal(t, "body", (<-second).refused(http.StatusBadRequest, "invalid"))
	require.Eventually(t, func() bool { small, large, _ := s.api.Bytes(); return small == 0 && large == 0 }, patience, tick)
}

// TestStreamsAreShared: a caller has its share of the streams, and operators the last ones.
func TestStreamsAreShared(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: threeRoles + "other-viewer-1 viewer\nthird-viewer-1 viewer\n"})
	open := func(token string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+"/api/v1/events", http.NoBody)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := s.server.Client().Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { _ = response.Body.Close() })
		return response.StatusCode
	}
	for range 16 {
		require.Equal(t, http.StatusOK, open(viewerToken))
	}
	require.Equal(t, http.StatusTooManyRequests, open(viewerToken))
	for range 12 {
		require.Equal(t, http.StatusOK, open("other-viewer-1"))
	}
	require.Equal(t, http.StatusTooManyRequests, open("third-viewer-1"))
	for range 4 {
		require.Equal(t, http.StatusOK, open(operatorToken))
	}
	require.Equal(t, http.StatusTooManyRequests, open(operatorToken))
}
