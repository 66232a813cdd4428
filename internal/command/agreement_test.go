package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/api"
	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/declarations"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/declared"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/operate"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// agreement is an API beside the commands, over the same Redis.
type agreement struct {
	*fixture

	server *httptest.Server
}

// newAgreement has a queue with that durability, or none.
func newAgreement(t *testing.T, durability string) *agreement {
	t.Helper()
	f := setup(t)
	if durability != "" {
		text, err := os.ReadFile(f.file)
		require.NoError(t, err)
		text = bytes.Replace(text, []byte("max_message: 1KiB"), []byte("max_message: 1KiB, durability: "+durability), 1)
		require.NoError(t, os.WriteFile(f.file, text, 0o600))
	}
	all, err := config.Load(f.file, nil)
	require.NoError(t, err)
	cfg := all.Queues["orders"]
	clients, err := all.Clients(f.rdb, "orders", nil)
	require.NoError(t, err)
	q := &operate.Queue{Name: "orders", Sink: cfg.Sink, Store: f.queue, Clients: clients}
	guard, err := access.NewGuard(access.Options{})
	require.NoError(t, err)
	allowing, err := config.Parse([]byte("{sinks: {events: {type: nats, url: 'nats://127.0.0.1:1'}}, queue_files: {api: {}}}"), nil)
	require.NoError(t, err)
	register := declarations.New(declarations.Config{
		Store: declared.New(f.rdb, all.Prefix, time.Second), IsUsed: func() bool { return true }, Lost: func() {}, Logger: slog.New(slog.DiscardHandler),
	})
	a, err := api.New(api.Config{
		Declarations: &operate.Declarations{
			Register: register, Config: func() *config.Config { return allowing },
			Admin: func(queue string) *inspect.Admin { return inspect.NewAdmin(store.New(f.rdb, all.Prefix, queue)) },
		},
		Instance: "test", Queues: func() map[string]*operate.Queue { return map[string]*operate.Queue{"orders": q} }, Sinks: func() []api.Sink { return nil },
		Inlets: seenInlets,
		Rules:  func(string) operate.RulesView { return operate.ViewRules(&cfg) }, Lateness: func(string) operate.Histogram { return operate.Histogram{} },
		Unconfirmed: func(string) []error {
			whys, err := q.Store.Unconfirmed(t.Context())
			assert.NoError(t, err)
			return whys
		},
		Rooms: func(string) inspect.Rooms {
			rooms, err := q.Admin().Rooms(t.Context())
			assert.NoError(t, err)
			return rooms
		},
		Guard: guard, Refused: func(string) {}, Level: telemetry.NewLevel("info"), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	server := httptest.NewServer(a)
	t.Cleanup(func() { a.Close(); server.Close() })
	return &agreement{f, server}
}

// seenInlets are inlets of which one consumes and one does not.
func seenInlets() operate.Inlets {
	behind := int64(7)
	const since = "2026-11-26T20:00:00.000Z"
	return operate.Inlets{Instance: "bridge-1", Began: since, Inlets: []operate.InletView{{
		InletSettings: operate.InletSettings{Name: "asked", Queue: "orders", Sink: "events", Type: "nats", From: "delay.commands", Stream: "DELAY", Group: "delaybridge-asked"},
		InletState: operate.InletState{
			State: operate.InletWaiting, Since: since, Cause: operate.CauseRedis, Reason: "connection refused", InHand: 2, Behind: &behind, BehindAt: since,
			Rate: &operate.InletRate{Over: 10, Done: 0.5}, Results: []operate.InletResult{{Op: "schedule", Result: "created", Count: 4}, {Result: "invalid", Count: 1}},
			Refused: &operate.InletRefusal{At: since, Position: "DELAY/3@1", Field: "delay-op", Reason: "no such operation"},
		},
	}, {
		InletSettings: operate.InletSettings{Name: "delayed", Queue: "orders", Sink: "events", Type: "nats", From: "delayed", Stream: "DELAY", Group: "delaybridge-delayed"},
		InletState:    operate.InletState{State: operate.InletDisconnected, Since: since, Cause: operate.CauseBroker, Results: []operate.InletResult{}},
	}}}
}

// call makes a call of the API; body is JSON, or empty.
func (a *agreement) call(method, path, body string) (status int, answer map[string]any) {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.t.Context(), method, a.server.URL+"/api/v1"+path, strings.NewReader(body))
	require.NoError(a.t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := a.server.Client().Do(request)
	require.NoError(a.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(a.t, err)
	require.NoError(a.t, json.Unmarshal(text, &answer), "%s", text)
	return response.StatusCode, answer
}

func (a *agreement) get(path string) map[string]any {
	a.t.Helper()
	status, answer := a.call(http.MethodGet, path, "")
	require.Equal(a.t, http.StatusOK, status, answer)
	return answer
}

// scene has a message of each state, all told by the history, and a pause.
func (a *agreement) scene() {
	a.t.Helper()
	a.ok("schedule", "--topic", "order.timeout", "--in", "0s", "--id", "first", "x")
	storetest.SetRules(a.t, a.queue, layout.Rules{History: layout.History{Count: 100, Age: time.Hour}})
	a.bury("dead-1", "dead-2")
	a.ok("schedule", "--topic", "order.timeout", "--in", "0s", "--id", "parked", "x")
	for shard, claim := range a.claim() {
		if len(claim.Messages) == 0 {
			continue
		}
		_, err := a.queue.Shard(shard).Settle(a.t.Context(), message.Settlement{
			Claim: claim, Verdicts: []message.Verdict{{Verb: message.VerbPark, Slot: 7}},
			Parks: []message.ParkedRoute{{Slot: 7, Route: "order.timeout", Reason: "full", Since: time.UnixMilli(1_790_000_000_000)}},
		})
		require.NoError(a.t, err)
	}
	a.ok("schedule", "--topic", "t", "--in", "0s", "--id", "in-flight", "x")
	a.claim()
	a.ok("schedule", "--topic", "t", "--in", "1h", "--id", "ended", "x")
	a.ok("cancel", "--id", "ended")
	a.ok("schedule", "--topic", "t", "--at", "2020-01-01T00:00:00Z", "--id", "due", "x")
	a.ok("schedule", "--topic", "t", "--in", "1h", "--id", "later", "--key", "k", "--tag", "vip", "--header", "a=b", "payload")
	a.ok("pause", "--topic", "other")
	a.ok("recurring set", "daily", "--cron", "0 20 * * *", "--zone", "Europe/Berlin", "--topic", "t", "--key", "k", "--tag", "vip", "--header", "a=b",
		"--late", "1h", "--missed", "catch_up", "--catch-up", "3", "--jitter", "30s", "--until", "2031-01-01T00:00:00Z", "payload")
	a.ok("recurring set", "hourly", "--cron", "@hourly", "--topic", "t")
	a.ok("recurring pause", "hourly")
	admin := inspect.NewAdmin(a.queue)
	require.NoError(a.t, admin.TellRooms(a.t.Context(), inspect.Rooms{
		Budget: &inspect.Room{Used: 1, Limit: 100, FullAt: time.Now().Add(time.Hour)}, Redis: &inspect.Room{Used: 2, Limit: 100},
	}))
}

// moving are the figures that are others a moment later: of a queue, and of parts of it.
var moving = []string{"age_s", "bytes", "now", "oldest_due_age_s"}

// still replaces what moves, wherever it is, by the fact that it is there.
func still(v any) any {
	switch x := v.(type) {
	case map[string]any:
		x = maps.Clone(x)
		_, isLook := x["age_s"]
		for name, value := range x {
			rates, areRates := value.(map[string]any)
			switch {
			case name == "rates" && areRates:
				x[name] = slices.Sorted(maps.Keys(rates))
			case slices.Contains(moving, name), name == "at" && isLook:
				x[name] = "there"
			default:
				x[name] = still(value)
			}
		}
		return x
	case []any:
		all := make([]any, len(x))
		for i := range x {
			all[i] = still(x[i])
		}
		return all
	}
	return v
}

func list(objects any) (list []any) {
	list, _ = objects.([]any)
	return list
}

// query is one of the API, and the command that asks the same; from names the list in the API's answer.
type query struct{ path, command, from string }

// queriesOfBoth are those that commands and API have: what prints an object a line there is
// a list, or an object, here.
var queriesOfBoth = []query{
	{"/queues/orders", "stats orders", ""},
	{"/queues/orders", "top orders --count 2 --every 10ms", "the last"},
	{"/usage", "usage orders", ""},
	{"/queues/orders/shards", "shards list --queue orders", "shards"},
	{"/queues/orders/messages", "list --queue orders", "messages"},
	{"/queues/orders/messages?tag=vip", "list --queue orders --tag vip", "messages"},
	{"/queues/orders/messages?state=scheduled&due_to=2021-01-01T00:00:00Z", "list --queue orders --state scheduled --due-to 2021-01-01T00:00:00Z", "messages"},
	{"/queues/orders/messages?reason_contains=large&id_prefix=dead", "list --queue orders --reason-contains large --id-prefix dead", "messages"},
	{"/queues/orders/messages/later?key=k", "get --queue orders --id later --key k", ""},
	{"/queues/orders/messages/parked", "get --queue orders --id parked", ""},
	{"/queues/orders/messages/in-flight", "get --queue orders --id in-flight", ""},
	{"/queues/orders/messages/dead-1", "get --queue orders --id dead-1", ""},
	{"/queues/orders/messages/dead-1", "dead show --queue orders --id dead-1", ""},
	{"/queues/orders/messages/ended", "get --queue orders --id ended", ""},
	{"/queues/orders/forecast?step=1h&from=2031-01-01T00:00:00Z&to=2031-01-02T00:00:00Z", "forecast --queue orders --step 1h --from 2031-01-01T00:00:00Z --to 2031-01-02T00:00:00Z", ""},
	{"/queues/orders/demand?within=87600h", "forecast --queue orders --within 87600h", ""},
	{"/inlets", "inlets --url URL", "inlets"},
	{"/declarations", "queues list --url URL", "declarations"},
	{"/declarations/bills", "queues show --url URL bills", ""},
	{"/jobs", "jobs list --queue orders", "jobs"},
	{"/jobs/JOB", "jobs show --queue orders JOB", ""},
	{"/queues/orders/recurring", "recurring list --queue orders", "recurring"},
	{"/queues/orders/recurring/daily", "recurring show --queue orders daily", ""},
	{"/queues/orders/recurring/daily?body=1", "recurring show --queue orders daily --body", ""},
}

// queriesOfOne have no command.
var queriesOfOne = []string{"/queues", "/queues/{queue}/recent", "/sinks", "/instances", "/audit", "/events", "/log-level"}

// TestQueriesAgree: commands and API tell the same of the same, field by field.
func TestQueriesAgree(t *testing.T) {
	t.Parallel()
	a := newAgreement(t, "")
	a.scene()
	status, _ := a.call(http.MethodPut, "/declarations/bills", `{"sink": "events", "owner": "ann"}`)
	require.Equal(t, http.StatusCreated, status)
	job := fmt.Sprint(a.ok("cancel", "--all", "--tag", "none", "--dry-run", "--no-wait", "-o", "json").object(t)["job"])
	require.Eventually(t, func() bool { return a.get("/queues/orders")["rates"] != nil }, time.Minute, 100*time.Millisecond)
	for _, q := range queriesOfBoth {
		args := append(strings.Fields(strings.NewReplacer("JOB", job, "URL", a.server.URL).Replace(q.command)), "--config", a.file, "-o", "json")
		var told, said []any
		for range 20 { // On a busy machine there may be no rates for a moment.
			if told, said = a.both(q, args, job); assert.ObjectsAreEqual(told, said) {
				break
			}
		}
		assert.Equal(t, told, said, "bridge %s", q.command)
	}
	said := a.ok("dead list", "-o", "json").objects(t)
	told := list(a.get("/queues/orders/messages?state=dead")["messages"])
	require.Len(t, told, len(said))
	for _, letter := range said { // Its order is another one.
		assert.Contains(t, told, any(letter))
	}
}

// both are what the API and the command answer to a query.
func (a *agreement) both(q query, args []string, job string) (told, said []any) {
	a.t.Helper()
	o := bridge(a.t, "", args...)
	require.Equal(a.t, exitDone, o.code, "%v: %+v", args, o)
	for _, object := range o.objects(a.t) {
		said = append(said, object)
	}
	answer := a.get(strings.ReplaceAll(q.path, "JOB", job))
	told = []any{answer}
	switch q.from {
	case "":
	case "the last":
		said = said[len(said)-1:]
	default:
		told = list(answer[q.from])
		require.NotEmpty(a.t, told, q.path)
	}
	return list(still(told)), list(still(said))
}

// TestQueriesOfTheAPI: each is compared, or known to have no command.
func TestQueriesOfTheAPI(t *testing.T) {
	t.Parallel()
	a := newAgreement(t, "")
	known := slices.Clone(queriesOfOne)
	for _, q := range queriesOfBoth {
		path, _, _ := strings.Cut(q.path, "?")
		path = strings.Replace(path, "/orders", "/{queue}", 1)
		if before, _, isOne := strings.Cut(path, "/messages/"); isOne {
			path = before + "/messages/{id}"
		}
		known = append(known, strings.NewReplacer("JOB", "{job}", "/daily", "/{name}", "/bills", "/{name}").Replace(path))
	}
	for path, item := range a.get("/openapi.json")["paths"].(map[string]any) {
		if item.(map[string]any)["get"] != nil {
			assert.Contains(t, known, path)
		}
	}
}

// TestVerbsAgree: what the API answers to a change, the command says, too, and besides which
// message it was.
func TestVerbsAgree(t *testing.T) {
	t.Parallel()
	a := newAgreement(t, "")
	a.ok("schedule", "--topic", "t", "--in", "1h", "first")
	const path = "/queues/orders/messages"
	message := `{"id": "m", "key": "k", "topic": "t", "body": "x", "at": "2031-01-01T00:00:00Z"`
	for _, verb := range []struct {
		command []string
		method  string
		path    string
		body    string
	}{
		{[]string{"schedule", "--topic", "t", "--at", "2031-01-01T00:00:00Z", "--id", "m", "--key", "k", "x"}, "POST", path, message + "}"},
		{[]string{"schedule", "--topic", "t", "--at", "2031-01-01T00:00:00Z", "--id", "m", "--key", "k", "--conflict", "replace", "x"}, "POST", path, message + `, "conflict": "replace"}`},
		{[]string{"schedule", "--topic", "t", "--at", "2031-01-01T00:00:00Z", "--id", "m", "--key", "k", "--conflict", "keep", "x"}, "POST", path, message + `, "conflict": "keep"}`},
		{[]string{"reschedule", "--id", "m", "--key", "k", "--in", "2h"}, "POST", path + "/m:reschedule?key=k", `{"in": "2h"}`},
		{[]string{"publish-now", "--id", "m", "--key", "k"}, "POST", path + "/m:publish-now?key=k", ""},
		{[]string{"cancel", "--id", "m", "--key", "k"}, "DELETE", path + "/m?key=k", ""},
		{[]string{"pause", "--topic", "t"}, "POST", "/queues/orders:pause", `{"topic": "t"}`},
		{[]string{"resume"}, "POST", "/queues/orders:resume", ""},
		{[]string{"recurring set", "n", "--cron", "0 0 1 1 *", "--topic", "t"}, "PUT", "/queues/orders/recurring/n", `{"cron": "0 0 1 1 *", "topic": "t"}`},
		{[]string{"recurring resume", "n"}, "POST", "/queues/orders/recurring/n:resume", ""},
	} {
		said := a.ok(verb.command[0], append([]string{"-o", "json"}, verb.command[1:]...)...).object(t)
		if verb.command[0] == "schedule" && said["status"] == "created" { // So that the API has something to do.
			a.ok("cancel", "--id", "m", "--key", "k")
		}
		if verb.command[0] == "cancel" {
			a.ok("schedule", "--topic", "t", "--in", "1h", "--id", "m", "--key", "k", "x")
		}
		status, told := a.call(verb.method, verb.path, verb.body)
		require.Less(t, status, 300, told)
		for name, value := range told {
			assert.Equal(t, value, said[name], "%v: %s", verb.command, name)
		}
		if verb.method == http.MethodPost && strings.Contains(verb.path, ":pause") {
			assert.Len(t, said, len(told))
		}
	}
}

// TestErrorsAgree: commands and API have one code for one error.
func TestErrorsAgree(t *testing.T) {
	t.Parallel()
	a := newAgreement(t, "")
	a.scene()
	const path = "/queues/orders/messages"
	for _, c := range []struct {
		command, method, path, body, code string
		exit                              int
	}{
		{"get --id none", "GET", path + "/none", "", "not_found", exitRefused},
		{"list --state dead --reason a --reason-contains b", "GET", path + "?state=dead&reason=a&reason_contains=b", "", "invalid", exitUsage},
		{"list --cursor nonsense", "GET", path + "?cursor=nonsense", "", "invalid", exitUsage},
		{"forecast --step 1ms", "GET", "/queues/orders/forecast?step=1ms", "", "invalid", exitUsage},
		{"cancel --id in-flight", "DELETE", path + "/in-flight", "", "too_late", exitRefused},
		{"reschedule --id none --in 1h", "POST", path + "/none:reschedule", `{"in": "1h"}`, "not_found", exitRefused},
		{"schedule --id due --topic t --in 1h x", "POST", path, `{"id": "due", "topic": "t", "in": "1h", "body": "x"}`, "duplicate", exitRefused},
		{"schedule --id a --topic t..t --in 1h x", "POST", path, `{"id": "a", "topic": "t..t", "in": "1h", "body": "x"}`, "invalid", exitUsage},
		{"pause --topic t..t", "POST", "/queues/orders:pause", `{"topic": "t..t"}`, "invalid", exitUsage},
		{"cancel --all --state nowhere", "POST", path + ":cancel", `{"filter": {"state": "nowhere"}}`, "invalid", exitUsage},
		{"jobs show none", "GET", "/jobs/none", "", "not_found", exitRefused},
		{"recurring show none", "GET", "/queues/orders/recurring/none", "", "not_found", exitRefused},
		{"recurring pause none", "POST", "/queues/orders/recurring/none:pause", "", "not_found", exitRefused},
		{"recurring delete none", "DELETE", "/queues/orders/recurring/none", "", "not_found", exitRefused},
		{"recurring set n --cron never --topic t", "PUT", "/queues/orders/recurring/n", `{"cron": "never", "topic": "t"}`, "invalid", exitUsage},
	} {
		verb := strings.Fields(c.command)
		o := a.run(verb[0], append([]string{"-o", "json"}, verb[1:]...)...)
		if verb[0] == "jobs" || verb[0] == "recurring" {
			o = a.run(verb[0]+" "+verb[1], append([]string{"-o", "json"}, verb[2:]...)...)
		}
		code, _ := o.errorOf(t)
		_, problem := a.call(c.method, c.path, c.body)
		assert.Equal(t, []any{c.code, c.code, c.exit}, []any{code, problem["code"], o.code}, c.command)
	}
}

// TestDurabilityIsTheSame: API and commands wait for what the configuration asks, here for a
// replica that is not there. Both say so of what was done, and refuse what was not.
func TestDurabilityIsTheSame(t *testing.T) {
	t.Parallel()
	a := newAgreement(t, "replicas")
	warned := func(o outcome) {
		t.Helper()
		assert.Equal(t, true, o.object(t)["not_durable"], "%+v", o)
		assert.Contains(t, o.stderr, `"warning":{"code":"not_durable"`)
	}
	schedule := []string{"--id", "command", "--topic", "t", "--in", "1h", "-o", "json", "x"}
	warned(a.ok("schedule", schedule...))
	again := a.run("schedule", schedule...)
	code, _ := again.errorOf(t)
	assert.Equal(t, []any{exitRefused, "duplicate"}, []any{again.code, code})
	warned(a.ok("cancel", "--id", "command", "-o", "json"))

	const messages = "/queues/orders/messages"
	status, answer := a.call(http.MethodPost, messages, `{"id": "api", "topic": "t", "in": "1h"}`)
	assert.Equal(t, []any{http.StatusCreated, true}, []any{status, answer["not_durable"]}, answer)
	status, answer = a.call(http.MethodPost, messages, `{"id": "api", "topic": "t", "in": "1h"}`)
	assert.Equal(t, []any{http.StatusConflict, "duplicate"}, []any{status, answer["code"]}, answer)
	status, answer = a.call(http.MethodDelete, messages+"/api", "")
	assert.Equal(t, []any{http.StatusOK, true}, []any{status, answer["not_durable"]}, answer)

	warned(a.ok("recurring set", "daily", "--cron", "@daily", "--topic", "t", "-o", "json", "x"))
	const daily = "/queues/orders/recurring/daily"
	status, answer = a.call(http.MethodPost, daily+":pause", "")
	assert.Equal(t, []any{http.StatusOK, true}, []any{status, answer["not_durable"]}, answer)
	warned(a.ok("recurring resume", "daily", "-o", "json"))
	status, answer = a.call(http.MethodPut, daily, `{"cron": "@hourly", "topic": "t"}`)
	assert.Equal(t, []any{http.StatusOK, true}, []any{status, answer["not_durable"]}, answer)
	status, answer = a.call(http.MethodGet, daily, "")
	assert.Equal(t, []any{http.StatusOK, nil}, []any{status, answer["not_durable"]}, answer)
	warned(a.ok("recurring delete", "daily", "-o", "json"))
	_ = a.ok("recurring set", "daily", "--cron", "@daily", "--topic", "t", "-o", "json", "x")
	status, answer = a.call(http.MethodDelete, daily, "")
	assert.Equal(t, []any{http.StatusOK, true}, []any{status, answer["not_durable"]}, answer)
}
