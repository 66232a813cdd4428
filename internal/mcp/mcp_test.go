package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/api"
)

func tools(t *testing.T, options Options, ask Ask) *Tools {
	t.Helper()
	document, err := api.Document("v1")
	require.NoError(t, err)
	all, err := New(document, options, ask)
	require.NoError(t, err)
	return all
}

// What a model may ask, and what it may change with Write.
const (
	reads  = "audit declaration declarations forecast get inlets instances job jobs list overview queue recent recurring recurrings shards sinks usage"
	writes = "acknowledgeLosses cancel cancelAll deleteRecurring pause pauseRecurring publishNow purgeAll redriveAll reschedule rescheduleAll resume resumeRecurring stopJob"
)

// TestEachCallIsAToolOrLeftOut: who adds a call to the API says whether a model may make it; and without Write there is
// no tool that changes anything.
func TestEachCallIsAToolOrLeftOut(t *testing.T) {
	t.Parallel()
	named := func(all *Tools, only func(one *tool) bool) (names []string) {
		for _, one := range all.list {
			if only(one) {
				names = append(names, one.Name)
			}
		}
		return names
	}
	every := func(*tool) bool { return true }
	all := tools(t, Options{Write: true}, nil)
	assert.Equal(t, strings.Fields(reads), named(tools(t, Options{}, nil), every))
	assert.Equal(t, strings.Fields(reads), named(all, func(one *tool) bool { return one.Annotations.ReadOnly }))
	assert.ElementsMatch(t, strings.Fields(reads+" "+writes), named(all, every))
	assert.ElementsMatch(t, destructive, named(all, func(one *tool) bool { return one.Annotations.Destructive }))

	document, err := api.Document("v1")
	require.NoError(t, err)
	for name := range leftOut {
		assert.Contains(t, string(document), `"operationId":"`+name+`"`)
	}
}

// TestSchemasArePlain: all clients understand them.
func TestSchemasArePlain(t *testing.T) {
	t.Parallel()
	for _, one := range tools(t, Options{Write: true, Bodies: true}, nil).list {
		text, err := json.Marshal(one.InputSchema)
		require.NoError(t, err)
		for _, word := range []string{"$ref", "oneOf", "allOf", "anyOf", "pattern", "components"} {
			assert.NotContains(t, string(text), `"`+word, one.Name)
		}
		properties, _ := one.InputSchema["properties"].(map[string]any)
		required, _ := one.InputSchema["required"].([]string)
		for _, name := range required {
			assert.Contains(t, properties, name, one.Name)
		}
		assert.Regexp(t, `^[a-zA-Z]{1,64}$`, one.Name)
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		`overview {}`: "GET /api/v1/queues",
		`get {"queue": "orders", "id": "order-42/timeout", "key": "a b"}`: "GET /api/v1/queues/orders/messages/order-42%2Ftimeout?key=a+b",
		`get {"queue": "orders", "id": ".."}`:                             "GET /api/v1/queues/orders/messages/%2E%2E",
		`list {"queue": "orders", "limit": 5, "tag": null}`:               "GET /api/v1/queues/orders/messages?limit=5",
		`pause {"queue": "orders"}`:                                       "POST /api/v1/queues/orders:pause {}",
		`pause {"queue": "orders", "topic": "t"}`:                         `POST /api/v1/queues/orders:pause {"topic":"t"}`,
		`reschedule {"queue": "q", "id": "a", "key": "k", "in": "1h"}`:    `POST /api/v1/queues/q/messages/a:reschedule?key=k {"in":"1h"}`,
		`redriveAll {"queue": "q", "filter": {"tag": "x"}, "rate": 1e2}`:  `POST /api/v1/queues/q/dead:redrive {"filter":{"tag":"x"},"rate":1e2}`,
		`publishNow {"queue": "q", "id": "a"}`:                            "POST /api/v1/queues/q/messages/a:publish-now",
		`cancel {"queue": "q", "id": "a"}`:                                "DELETE /api/v1/queues/q/messages/a",
		`get {"queue": "q"}`:                                              "get needs the argument id",
		`get {"queue": ["q"], "id": "a"}`:                                 "queue must be a text, a number, true or false",
		`get {"queue": "q", "id": "a", "body": true}`:                     `get has no argument "body"`,
		`overview {"queue": "q"}`:                                         `overview has no argument "queue"`,
	} {
		name, text, _ := strings.Cut(arguments, " ")
		var values map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(text), &values))
		asked := ""
		all := tools(t, Options{Write: true}, func(_ context.Context, method, path string, body []byte) ([]byte, error) {
			asked = strings.TrimSpace(method + " " + path + " " + string(body))
			return []byte("{}"), nil
		})
		if _, err := all.call(t.Context(), all.find(name), values); err != nil {
			asked = err.Error()
		}
		assert.Equal(t, want, asked, arguments)
	}
}

// TestPrivate: bodies and headers stay here unless they were asked for, and figures stay what they are.
func TestPrivate(t *testing.T) {
	t.Parallel()
	const answer = `{"messages":[{"id":"a","headers":{"x":"secret"},"body":"secret","body_base64":"secret","due":9007199254740993}]}`
	ask := func(context.Context, string, string, []byte) ([]byte, error) { return []byte(answer), nil }
	arguments := map[string]json.RawMessage{"queue": json.RawMessage(`"q"`)}
	all := tools(t, Options{}, ask)
	text, err := all.call(t.Context(), all.find("list"), arguments)
	require.NoError(t, err)
	assert.JSONEq(t, `{"messages":[{"id":"a","due":9007199254740993}]}`, text)
	assert.Contains(t, text, "9007199254740993")
	assert.NotContains(t, all.find("get").InputSchema["properties"], "body")

	all = tools(t, Options{Bodies: true}, ask)
	text, err = all.call(t.Context(), all.find("list"), arguments)
	require.NoError(t, err)
	assert.JSONEq(t, answer, text)
	assert.Contains(t, all.find("get").InputSchema["properties"], "body")
}

// TestProtocol has the answers to lines of a client.
func TestProtocol(t *testing.T) {
	t.Parallel()
	s := &Server{Version: "v1", Tools: tools(t, Options{}, func(context.Context, string, string, []byte) ([]byte, error) {
		return nil, errors.New("forbidden: not you")
	})}
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":"a","method":"ping"}`:             `{"jsonrpc":"2.0","id":"a","result":{}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`: ``,
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                   ``,
		`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`:    `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"there is no method \"server/discover\""}}`,
		`{`:  `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the line is no JSON"}}`,
		`[]`: `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the line is no request"}}`,
		`{"id":1,"method":"initialize","params":{}}`:                      `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"protocolVersion is missing"}}`,
		`{"id":1,"method":"tools/call","params":{"name":"pause"}}`:        `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"there is no tool \"pause\""}}`,
		`{"id":1,"method":"tools/call","params":[]}`:                      `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"the parameters cannot be read: json: cannot unmarshal array into Go value of type struct { Name string; Arguments map[string]json.RawMessage }"}}`,
		`{"id":1,"method":"tools/call","params":{"name":"sinks"}}`:        `{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"forbidden: not you","type":"text"}],"isError":true}}`,
		`{"id":1,"method":"tools/call","params":{"name":"job","x":null}}`: `{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"job needs the argument job","type":"text"}],"isError":true}}`,
	} {
		var out bytes.Buffer
		require.NoError(t, s.Serve(t.Context(), strings.NewReader(line+"\n"), &out), line)
		assert.Equal(t, want, strings.TrimSpace(out.String()), line)
	}
	for asked, agreed := range map[string]string{"2024-11-05": "2024-11-05", "2025-06-18": "2025-06-18", "2099-01-01": versions[0]} {
		result, fault := s.initialize(json.RawMessage(`{"protocolVersion": "` + asked + `"}`))
		require.Nil(t, fault)
		assert.Equal(t, agreed, result.(map[string]any)["protocolVersion"])
	}
}

// TestServeEnds: with ctx, although nothing is read, and at a message that is too long.
func TestServeEnds(t *testing.T) {
	t.Parallel()
	s := &Server{Tools: tools(t, Options{}, nil)}
	ctx, cancel := context.WithCancel(t.Context())
	in, client := io.Pipe()
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, in, io.Discard) }()
	cancel()
	require.NoError(t, <-ended)
	require.NoError(t, client.Close())
	require.ErrorContains(t, s.Serve(t.Context(), strings.NewReader(strings.Repeat("x", mostLine+1)), io.Discard), "at most 1048576 bytes")
}
