package inputs

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// send makes a call of the HTTP API. Its text begins with the field that is named.
func send(ctx context.Context, method, url, body string, headers map[string]string) answer {
	const longest = 2 * time.Minute // A busy machine takes its time.
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
		if !wait.Sleep(ctx, 100*time.Millisecond) { // A fifth of what may come at once is allowed again.
			return answer{broken: true, text: ctx.Err().Error()}
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

// httpEntrance is the HTTP API of the bridge.
type httpEntrance struct {
	aim
	admin string
}

func (e httpEntrance) name() string { return "http" }

// call is one of the API below /api/v1.
func (e httpEntrance) call(what string, names []string, method, path, body string) input {
	return input{what, append(names, tooLargeCall), func(ctx context.Context) answer {
		return send(ctx, method, "http://"+e.admin+"/api/v1"+path, body, nil)
	}}
}

func (e httpEntrance) inputs(context.Context) (list []input, err error) {
	queue := "/queues/" + e.queue
	post := func(what string, names []string, path, body string) {
		list = append(list, e.call("POST "+path+": "+what, names, http.MethodPost, path, body))
	}
	good := e.members()
	for _, bad := range badSchedules(e.aim) {
		post(bad.what, bad.names, queue+"/messages", bad.text)
	}
	rnd := e.random("http")
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
	for _, change := range []struct {
		path    string
		members []member
	}{ // in an order, so that a seed always makes the same
		{"/messages/" + keptID + ":reschedule", []member{{"in", `"1h"`}, {"spread", `"1m"`}}},
		{"/messages:cancel", []member{filter, {"rate", "1"}, {"dry_run", "false"}}},
		{"/messages:reschedule", []member{filter, {"by", `"1h"`}}},
		{"/dead:redrive", []member{filter}},
		{"/dead:purge", []member{filter}},
		{":pause", []member{{"topic", quote(e.topic)}}},
	} {
		for _, bad := range documents(change.members, rnd) {
			post(bad.what, bad.names, queue+change.path, bad.text)
		}
	}
	for _, bad := range documents([]member{{"level", `"debug"`}, {"for", `"10m"`}}, rnd) {
		list = append(list, e.call("PUT /log-level: "+bad.what, bad.names, http.MethodPut, "/log-level", bad.text))
	}
	e.badChanges(post)
	return append(list, e.badQueries()...), nil
}
