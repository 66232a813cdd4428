package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

// send makes a call of the HTTP API. Its text begins with the field that is named.
func send(ctx context.Context, method, url, body string, headers map[string]string) answer {
	const longest = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{broken: true, text: err.Error()}
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{broken: true, text: err.Error()}
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{broken: true, text: err.Error()}
	}
	if response.StatusCode == http.StatusTooManyRequests { // The caller's limit, not the input's.
		if err := pause(ctx, 100*time.Millisecond); err != nil { //nolint:mnd // a fifth of what may come at once
			return answer{broken: true, text: err.Error()}
		}
		return send(ctx, method, url, body, headers)
	}
	a := answer{text: string(content), broken: response.StatusCode >= http.StatusInternalServerError}
	a.refused = !a.broken && response.StatusCode >= http.StatusBadRequest
	var problem struct{ Field, Detail string }
	if a.refused && json.Unmarshal(content, &problem) == nil && problem.Detail != "" {
		a.text = problem.Detail
		if problem.Field != "" {
			a.text = problem.Field + ": " + problem.Detail
		}
	}
	return a
}

// tooLargeCall is what a server of HTTP says of a path, query or header that it does not
// even read: 431.
const tooLargeCall = "Request Header Fields Too Large"

// httpTrial is a call of the API below /api/v1.
func (f *inputs) httpTrial(what string, names []string, method, path, body string) trial {
	return trial{what, append(names, tooLargeCall), func(ctx context.Context) answer {
		return send(ctx, method, "http://"+f.world.Bridge.Admin()+"/api/v1"+path, body, nil)
	}}
}

// http calls the HTTP API of the bridge.
func (f *inputs) http(context.Context) (list []trial, err error) {
	queue := "/queues/" + f.world.Queue()
	post := func(what string, names []string, path, body string) {
		list = append(list, f.httpTrial("POST "+path+": "+what, names, http.MethodPost, path, body))
	}
	good := f.goodMembers()
	for _, bad := range f.badSchedules() {
		post(bad.what, bad.names, queue+"/messages", bad.text)
	}
	rnd := f.random("http")
	for _, bad := range documents(good, rnd) {
		post(bad.what, bad.names, queue+"/messages", bad.text)
	}
	for _, bad := range documents([]member{{"messages", "[" + object(good) + "]"}}, rnd) {
		post(bad.what, bad.names, queue+"/messages:batch", bad.text)
	}
	for name, value := range map[string]string{"none": "[]", "1,001": "[" + strings.Repeat("{},", 1000) + "{}]"} {
		post(name, []string{"messages"}, queue+"/messages:batch", `{"messages": `+value+`}`)
	}
	filter := member{"filter", `{"id_prefix": "kept-"}`}
	for path, members := range map[string][]member{
		queue + "/messages/" + keptID + ":reschedule": {{"in", `"1h"`}, {"spread", `"1m"`}},
		queue + "/messages:cancel":                    {filter, {"rate", "1"}, {"dry_run", "false"}},
		queue + "/messages:reschedule":                {filter, {"by", `"1h"`}},
		queue + "/dead:redrive":                       {filter},
		queue + "/dead:purge":                         {filter},
		queue + ":pause":                              {{"topic", quote(f.world.Topic)}},
	} {
		for _, bad := range documents(members, rnd) {
			post(bad.what, bad.names, path, bad.text)
		}
	}
	for _, bad := range documents([]member{{"level", `"debug"`}, {"for", `"10m"`}}, rnd) {
		list = append(list, f.httpTrial("PUT /log-level: "+bad.what, bad.names, http.MethodPut, "/log-level", bad.text))
	}
	f.badChanges(post)
	return append(list, f.badQueries()...), nil
}

// goodMembers are a message in JSON, in the place of the first that is kept.
func (f *inputs) goodMembers() []member {
	return []member{
		{"id", quote(keptID)},
		{"key", `""`},
		{"topic", quote(f.world.Topic)},
		{"in", `"1h"`},
		{"spread", `"1m"`},
		{"body", `"bad"`},
		{"headers", `{"good": "a"}`},
		{"tags", `["good"]`},
		{"late", `{"after": "1h", "then": "dead"}`},
		{"conflict", `"replace"`},
	}
}

// badSchedules are messages in JSON that are wrong by what they mean.
func (f *inputs) badSchedules() (list []document) {
	rnd, base := f.random("schedules"), []member{{"conflict", `"replace"`}, {"in", `"1h"`}}
	for _, bad := range spoil(f.goodMessage(), rnd) {
		list = append(list, document{bad.what, bad.names, object(append(messageMembers(&bad.message), base...))})
	}
	good := f.goodMembers()
	add := func(name, value string, names ...string) {
		list = append(list, document{fmt.Sprintf("%s %.80s", name, value), append(names, name), object(with(good, name, value))})
	}
	for _, text := range badDurations() {
		add("in", quote(text), "due")
		add("spread", quote(text))
		add("late", `{"then": "drop", "after": `+quote(text)+"}")
	}
	for _, text := range []string{"87841h", "3661d", "106751d", "2562047h"} {
		add("in", quote(text), "due")
	}
	for _, text := range append(badTimes(), "1969-12-31T23:59:59.999Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", beyondNanos) {
		list = append(list, document{"at " + text, []string{"at", "due"}, object(with(without(good, "in", "spread"), "at", quote(text)))})
	}
	add("at", `"2030-01-01T00:00:00Z"`, "in") // with in
	add("in", `""`)
	for _, text := range []string{"Reject", "drop", "replace "} {
		add("conflict", quote(text))
	}
	for _, text := range []string{"#", "AA=", "A", "_-==", "AAAA====", "\u00e4"} {
		list = append(list, document{"body_base64 " + text, []string{"body_base64"}, object(with(without(good, "body"), "body_base64", quote(text)))})
	}
	add("body_base64", `"QUJD"`) // with body
	list = append(list, document{"no topic", []string{"topic"}, object(without(good, "topic"))},
		document{"neither in nor at", []string{"in"}, object(without(good, "in"))})
	for _, value := range []string{"[null]", "[1]", `["a", null]`} {
		add("tags", value, "tag")
	}
	for _, value := range []string{`{"a": null}`, `{"a": 1}`, `{"a": "b", "a": "c"}`, `{"a": "\ud800"}`, `{"\udc00": "a"}`, `{"a": ["b"]}`} {
		add("headers", value)
	}
	return list
}

func without(members []member, names ...string) (rest []member) {
	for _, m := range members {
		if !slices.Contains(names, m.name) {
			rest = append(rest, m)
		}
	}
	return rest
}

// messageMembers is a message in JSON, but for its due time.
func messageMembers(m *delay.Message) []member {
	tags, headers := make([]string, len(m.Tags)), make([]member, 0, len(m.Headers))
	for i, tag := range m.Tags {
		tags[i] = quote(tag)
	}
	for name, value := range m.Headers {
		headers = append(headers, member{name, quote(value)})
	}
	members := []member{
		{"id", quote(m.ID)},
		{"key", quote(m.Key)},
		{"topic", quote(m.Topic)},
		{"headers", object(headers)},
		{"tags", "[" + strings.Join(tags, ", ") + "]"},
		{"body_base64", quote(base64.StdEncoding.EncodeToString(m.Body))},
	}
	if m.Late != (delay.Late{}) {
		members = append(members, member{"late", object([]member{{"after", quote(m.Late.After.String())}, {"then", quote(string(m.Late.Then))}})})
	}
	return members
}
