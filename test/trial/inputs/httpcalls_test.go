package inputs

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// badChanges are changes by the API that are wrong by what they mean.
func (e httpEntrance) badChanges(post func(what string, names []string, path, body string)) {
	queue := "/queues/" + e.queue
	for _, text := range []string{"--1h", "-+1h", "+-1h", "++1h", "- 1h"} {
		post("by "+text, []string{"by"}, queue+"/messages:reschedule", `{"filter": {"id_prefix": "kept-"}, "by": `+quote(text)+"}")
	}
	for _, text := range badDurations() {
		post("in "+text, []string{"in"}, queue+"/messages/"+keptID+":reschedule", object([]member{{"in", quote(text)}}))
		post("by "+text, []string{"by"}, queue+"/messages:reschedule", `{"filter": {"id_prefix": "kept-"}, "by": `+quote(text)+"}")
	}
	for _, text := range append(badTimes(), "1969-12-31T23:59:59.999Z", "9999-12-31T23:59:59Z") {
		post("at "+text, []string{"at", "due"}, queue+"/messages/"+keptID+":reschedule", object([]member{{"at", quote(text)}}))
		post("at "+text, []string{"at"}, queue+"/messages:reschedule", `{"filter": {"id_prefix": "kept-"}, "at": `+quote(text)+"}")
	}
	for _, body := range []string{"{}", `{"in": "1h", "at": "2030-01-01T00:00:00Z"}`} {
		post(body, []string{"in"}, queue+"/messages/"+keptID+":reschedule", body)
	}
	for _, job := range []string{"messages:cancel", "messages:reschedule", "dead:redrive", "dead:purge"} {
		for body, names := range map[string][]string{
			`{}`:                         {"filter"},
			`{"filter": {}, "by": "1h"}`: {"filter"},
			`{"filter": {"state": "lost"}, "by": "1h"}`:                                           {"state"},
			`{"filter": {"tag": "a b"}, "by": "1h"}`:                                              {"tag"},
			`{"filter": {"due_from": "soon"}, "by": "1h"}`:                                        {"due_from"},
			`{"filter": {"id_prefix": "kept-"}, "rate": -1}`:                                      {"rate"},
			`{"filter": {"id_prefix": "kept-"}, "rate": 1e9}`:                                     {"at or by", "rate"},
			`{"filter": {"id_prefix": "kept-", "state": "scheduled", "reason": "a"}, "by": "1h"}`: {"state"},
			`{"filter": {"id_prefix": "kept-"}, "by": "1h", "in": "1h"}`:                          {"at or by", "by"},
			`{"filter": {"id_prefix": "kept-"}, "at": "2030-01-01T00:00:00Z", "in": "1h"}`:        {"in"},
			`{"filter": {"id_prefix": "kept-"}, "by": "87841h"}`:                                  {"by", "at or by"},
			`{"filter": {"id_prefix": "kept-"}, "in": "87841h"}`:                                  {"at ", "at"},
			`{"filter": {"id_prefix": "kept-"}, "in": "2562047h"}`:                                {"at ", "at"},
			`{"filter": {"due_from": "2030-01-02T00:00:00Z", "due_to": "2030-01-01T00:00:00Z"}, "by": "1h"}`: {
				"due from",
			},
		} {
			if job == "messages:reschedule" && strings.Contains(body, `"rate": 1e9`) {
				continue // It lacks the due time, not the rate.
			}
			if job != "messages:reschedule" { // It would be a second fault.
				body = strings.Replace(body, `, "by": "1h"`, "", 1)
			}
			post(body, names, queue+"/"+job, body)
		}
	}
	for _, topic := range badTopics(e.random("pause")) {
		if topic != "" { // the whole queue
			bad := newDocument("topic "+topic, []string{"topic"}, object([]member{{"topic", quote(topic)}}))
			post(bad.what, bad.names, queue+":pause", bad.text)
		}
	}
}

// badQueries are calls that are wrong in their path or query.
func (e httpEntrance) badQueries() (list []input) {
	queue := "/queues/" + e.queue
	get := func(path string, names ...string) {
		list = append(list, e.call(fmt.Sprintf("GET %.120s", path), names, http.MethodGet, path, ""))
	}
	for _, limit := range []string{"0", "-1", "1001", "NaN", "1.5", "1e3", "99999999999999999999", "all"} {
		get(queue+"/messages?limit="+limit, "limit")
		get("/audit?limit="+limit, "limit")
	}
	for name, values := range map[string][]string{
		"state": {"lost", "SCHEDULED", "scheduled,dead"}, "due_from": badTimes(), "due_to": badTimes(), "cursor": {"x", "%00", "0", strings.Repeat("A", 1000)},
		"tag": badTags(e.random("query")), "nothing": {"1"}, "Limit": {"1"},
	} {
		for _, value := range values {
			if value != "" {
				get(queue+"/messages?"+name+"="+url.QueryEscape(value), name)
			}
		}
	}
	for _, query := range []string{"limit=1&limit=2", "limit=1&limit=1", "limit=%zz", "limit=1;2", "%zz=1"} {
		get(queue+"/messages?"+query, "limit", "query")
	}
	for _, query := range []string{"key=&key=other", "key=%zz", "key=;", "Key=a", "nothing=1"} {
		list = append(list, e.call("DELETE with "+query, []string{"key", "query", "nothing"}, http.MethodDelete, queue+"/messages/"+keptID+"?"+query, ""))
	}
	get(queue+"/messages?due_from=2030-01-02T00:00:00Z&due_to=2030-01-01T00:00:00Z", "due from")
	get(queue+"/messages?state=scheduled&reason=a", "state")
	for _, step := range append(badDurations(), "0s", "-1h", "1s", "1ns") {
		get(queue+"/forecast?step="+url.QueryEscape(step), "step")
	}
	for _, within := range append(badDurations(), "-1h", "11y") {
		get(queue+"/demand?within="+url.QueryEscape(within), "within")
	}
	for _, text := range badTimes() {
		get(queue+"/forecast?from="+url.QueryEscape(text), "from")
		get(queue+"/forecast?to="+url.QueryEscape(text), "to")
	}
	get(queue+"/forecast?from=2030-01-02T00:00:00Z&to=2030-01-01T00:00:00Z", "from", "to ")
	get(queue+"/forecast?to=9999-01-01T00:00:00Z", "step")
	for _, name := range badNames(e.random("path")) {
		path := queue + "/messages/" + url.PathEscape(name)
		get(path, fieldNames("id")...)
		list = append(list, e.call(fmt.Sprintf("DELETE %.120s", path), fieldNames("id"), http.MethodDelete, path, ""),
			e.call(fmt.Sprintf("DELETE with the key %.80q", name), fieldNames("key"), http.MethodDelete, queue+"/messages/"+keptID+"?key="+url.QueryEscape(name), ""),
			e.call(fmt.Sprintf("POST publish-now %.80q", name), fieldNames("id"), http.MethodPost, path+":publish-now", ""))
	}
	for _, name := range []string{"nothing", "Orders", "a%20b", "%00", "%FF"} {
		get("/queues/"+name, "queue")
		get("/queues/"+name+"/messages", "queue")
		list = append(list, e.call("POST to queue "+name, []string{"queue"}, http.MethodPost, "/queues/"+name+"/messages", object(e.members())))
	}
	get("/audit?queue=nothing", "queue")
	get("/jobs/nothing", "job")
	return append(list, e.badHeaders()...)
}

// badHeaders are calls with headers that the API reads.
func (e httpEntrance) badHeaders() (list []input) {
	body := object(without(e.members(), "id"))
	call := func(what string, names []string, headers map[string]string, body string) {
		list = append(list, input{what, append(names, tooLargeCall), func(ctx context.Context) answer {
			return send(ctx, http.MethodPost, "http://"+e.admin+"/api/v1/queues/"+e.queue+"/messages", body, headers)
		}})
	}
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "application/json+x", "application", "/", ";"} {
		call("Content-Type "+kind, []string{"Content-Type"}, map[string]string{"Content-Type": kind}, body)
	}
	for _, name := range append(tooLong(mostName), `""`, "a\xff", "a\x80b", "a\u0085b") {
		call(fmt.Sprintf("Idempotency-Key %.80q", name), []string{"Idempotency-Key"}, map[string]string{"Idempotency-Key": name}, body)
	}
	return list
}
