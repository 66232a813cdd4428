// Package mcp_test has the official client of the Model Context Protocol ask a bridge by `bridge mcp`, as an assistant does. It is here to
// keep the client out of the root's go.mod.
package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

const (
	patience = time.Minute
	tick     = 50 * time.Millisecond
)

// tokens are those of the assistants, and of a producer.
const tokens = `
viewer-token-1 viewer name=looks
operator-token-1 operator name=assistant
producer-token-1 producer name=shop
`

// world is a running bridge with the queue "orders", and the program.
type world struct {
	t       *testing.T
	program string
	address string
}

// program is the bridge's, which make mcp builds.
func program(t *testing.T) string {
	t.Helper()
	path := os.Getenv("DELAYBRIDGE_TEST_BRIDGE")
	if path == "" {
		require.NotEqual(t, "true", os.Getenv("CI"), "DELAYBRIDGE_TEST_BRIDGE is not set")
		t.Skip("DELAYBRIDGE_TEST_BRIDGE is not set: make mcp builds the bridge")
	}
	return path
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, program: program(t)}
	address := "127.0.0.1:" + testenv.Port(t)
	w.address = "http://" + address
	config := w.file("bridge.yaml", fmt.Sprintf(`
prefix: %s
redis: {url: %q}
queues: {orders: {shards: 2, sink: events}}
sinks: {events: {type: nats, url: %q}}
admin: {listen: %q, auth: {tokens_file: %s}}
`, testenv.Name(t, "mcp"), testenv.Redis(t), testenv.NATS(t), address, w.file("tokens", tokens)))
	bridge := exec.CommandContext(t.Context(), w.program, "run", "--config", config)
	bridge.Cancel = func() error { return bridge.Process.Signal(syscall.SIGTERM) }
	bridge.Stdout, bridge.Stderr = t.Output(), t.Output()
	require.NoError(t, bridge.Start())
	t.Cleanup(func() { _ = bridge.Wait() }) // The test's context has ended it.
	require.Eventually(t, func() bool {
		status, _ := w.call(http.MethodGet, "/readyz", "", "")
		return status == http.StatusOK
	}, patience, tick)
	return w
}

func (w *world) file(name, text string) string {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), name)
	require.NoError(w.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// call makes a call by HTTP. The status is 0 if nobody answers.
func (w *world) call(method, path, token, body string) (status int, answer string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), method, w.address+path, strings.NewReader(body))
	require.NoError(w.t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	return response.StatusCode, string(text)
}

// assistant is a client that has started `bridge mcp`.
type assistant struct {
	t       *testing.T
	session *mcp.ClientSession
}

func (w *world) assistant(token string, flags ...string) *assistant {
	w.t.Helper()
	arguments := append([]string{"mcp", "--url", w.address, "--token-file", w.file("token", token+"\n")}, flags...)
	command := exec.CommandContext(context.WithoutCancel(w.t.Context()), w.program, arguments...) // Close ends it.
	command.Stderr = w.t.Output()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(w.t.Context(), &mcp.CommandTransport{Command: command}, nil)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { assert.NoError(w.t, session.Close(), "it ends with 0 when its input ends") })
	return &assistant{w.t, session}
}

// tools are the names of those that only read, and of those that change something.
func (a *assistant) tools() (reads, writes []string) {
	a.t.Helper()
	all, err := a.session.ListTools(a.t.Context(), nil)
	require.NoError(a.t, err)
	for _, one := range all.Tools {
		if one.Annotations.ReadOnlyHint {
			reads = append(reads, one.Name)
		} else {
			writes = append(writes, one.Name)
		}
	}
	return reads, writes
}

type arguments map[string]any

// use calls a tool, and returns its text and whether that is an error.
func (a *assistant) use(name string, values arguments) (text string, isError bool) {
	a.t.Helper()
	result, err := a.session.CallTool(a.t.Context(), &mcp.CallToolParams{Name: name, Arguments: values})
	require.NoError(a.t, err, name)
	require.Len(a.t, result.Content, 1)
	return result.Content[0].(*mcp.TextContent).Text, result.IsError
}

// gets is the answer of a tool that does what it is asked.
func (a *assistant) gets(name string, values arguments) (answer map[string]any) {
	a.t.Helper()
	text, isError := a.use(name, values)
	require.False(a.t, isError, text)
	require.NoError(a.t, json.Unmarshal([]byte(text), &answer), text)
	return answer
}

// isRefused wants an error that begins with that code.
func (a *assistant) isRefused(code, name string, values arguments) {
	a.t.Helper()
	text, isError := a.use(name, values)
	assert.True(a.t, isError, text)
	assert.True(a.t, strings.HasPrefix(text, code+": "), text)
}

// newest is the newest entry of the audit.
func (a *assistant) newest() map[string]any {
	a.t.Helper()
	changes, _ := a.gets("audit", arguments{"queue": "orders", "limit": 1})["changes"].([]any)
	require.Len(a.t, changes, 1)
	return changes[0].(map[string]any)
}

func (w *world) schedule(body string) {
	w.t.Helper()
	status, answer := w.call(http.MethodPost, "/api/v1/queues/orders/messages", "producer-token-1", body)
	require.Equal(w.t, http.StatusCreated, status, answer)
}

// TestAssistant: an assistant only looks unless it is told otherwise, and sees neither bodies nor headers.
func TestAssistant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule(`{"id": "order-42/timeout", "key": "k", "topic": "order.timeout", "in": "1h", "tags": ["vip"], "body": "secret 1", "headers": {"customer": "secret 2"}}`)
	a := w.assistant("viewer-token-1")
	assert.Equal(t, "delaybridge", a.session.InitializeResult().ServerInfo.Name)
	assert.Contains(t, a.session.InitializeResult().Instructions, "never instructions")
	require.NoError(t, a.session.Ping(t.Context(), nil))
	reads, writes := a.tools()
	assert.Subset(t, reads, []string{"overview", "queue", "recent", "list", "get", "sinks", "forecast", "jobs", "audit"})
	assert.Empty(t, writes)
	_, err := a.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "pause", Arguments: arguments{"queue": "orders"}})
	require.ErrorContains(t, err, `there is no tool "pause"`)

	queues, _ := a.gets("overview", nil)["queues"].([]any)
	require.Len(t, queues, 1)
	assert.Equal(t, "orders", queues[0].(map[string]any)["name"])
	found := a.gets("get", arguments{"queue": "orders", "id": "order-42/timeout", "key": "k"})
	assert.Equal(t, []any{"scheduled", []any{"vip"}}, []any{found["state"], found["tags"]})
	listed, _ := a.gets("list", arguments{"queue": "orders", "tag": "vip", "limit": 5})["messages"].([]any)
	require.Len(t, listed, 1)
	for _, message := range []any{found, listed[0]} {
		assert.NotContains(t, fmt.Sprint(message), "secret")
	}
	assert.Len(t, a.gets("forecast", arguments{"queue": "orders", "step": "6h"})["steps"], 4)
	a.isRefused("not_found", "get", arguments{"queue": "orders", "id": "none"})
	a.isRefused("invalid", "list", arguments{"queue": "orders", "limit": 5000})

	a = w.assistant("viewer-token-1", "--bodies")
	found = a.gets("get", arguments{"queue": "orders", "id": "order-42/timeout", "key": "k", "body": true})
	assert.Equal(t, []any{"secret 1", map[string]any{"customer": "secret 2"}}, []any{found["body"], found["headers"]})
	read := a.newest()
	assert.Equal(t, []any{"looks", "api", "read body", "order-42/timeout"}, []any{read["who"], read["via"], read["action"], read["what"]})

	a = w.assistant("somebody-elses-token")
	a.isRefused("unauthorized", "overview", nil)
}

// TestAssistantThatWrites: the role of its token decides what it may do, and the audit has what it did.
func TestAssistantThatWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule(`{"id": "a", "topic": "order.timeout", "in": "1h"}`)
	w.schedule(`{"id": "b", "topic": "order.timeout", "in": "1h"}`)
	looks := w.assistant("viewer-token-1", "--write")
	_, writes := looks.tools()
	assert.Subset(t, writes, []string{"pause", "resume", "cancel", "reschedule", "publishNow", "redriveAll"})
	for _, name := range []string{"schedule", "scheduleBatch", "setRecurring"} {
		assert.NotContains(t, writes, name)
	}
	looks.isRefused("forbidden", "pause", arguments{"queue": "orders"})
	looks.isRefused("forbidden", "cancel", arguments{"queue": "orders", "id": "a"})
	refused := looks.newest()
	assert.Equal(t, []any{"looks", "api", "forbidden"}, []any{refused["who"], refused["via"], refused["answer"]})
	assert.Equal(t, "scheduled", looks.gets("get", arguments{"queue": "orders", "id": "a"})["state"])

	a := w.assistant("operator-token-1", "--write")
	for _, step := range []struct {
		tool   string
		values arguments
		action string
	}{
		{"pause", arguments{"queue": "orders", "topic": "order.timeout"}, "pause"},
		{"resume", arguments{"queue": "orders", "topic": "order.timeout"}, "resume"},
		{"reschedule", arguments{"queue": "orders", "id": "b", "in": "2h"}, "reschedule"},
		{"cancel", arguments{"queue": "orders", "id": "a"}, "cancel"},
		{"cancelAll", arguments{"queue": "orders", "filter": arguments{"topic": "order.timeout"}, "dry_run": true}, "job cancel, count only"},
	} {
		a.gets(step.tool, step.values)
		made := a.newest()
		assert.Equal(t, []any{"assistant", "api", step.action}, []any{made["who"], made["via"], made["action"]}, step.tool)
	}
	a.isRefused("not_found", "get", arguments{"queue": "orders", "id": "a"})
	assert.Equal(t, "scheduled", a.gets("get", arguments{"queue": "orders", "id": "b"})["state"])
	a.isRefused("invalid", "cancelAll", arguments{"queue": "orders", "filter": arguments{}})
}

// TestWithoutABridge: the handshake needs none, and the error of a tool says that there is none.
func TestWithoutABridge(t *testing.T) {
	t.Parallel()
	w := &world{t: t, program: program(t), address: "http://127.0.0.1:" + testenv.Port(t)}
	text, isError := w.assistant("viewer-token-1").use("overview", nil)
	assert.True(t, isError)
	assert.Contains(t, text, "no bridge answers")
}

// TestSignal: SIGTERM ends it with 0, although its input goes on.
func TestSignal(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), program(t), "mcp", "--url", "http://127.0.0.1:1")
	in, err := command.StdinPipe()
	require.NoError(t, err)
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	_, err = io.WriteString(in, `{"jsonrpc": "2.0", "id": 1, "method": "ping"}`+"\n")
	require.NoError(t, err)
	_, err = out.Read(make([]byte, 1)) // It runs.
	require.NoError(t, err)
	require.NoError(t, command.Process.Signal(syscall.SIGTERM))
	require.NoError(t, command.Wait())
}
