package inputs

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/delaybridge/delaybridge/delay"
)

// badSchedules are messages in JSON that are wrong by what they mean.
func badSchedules(a aim) (list []document) {
	rnd, base := a.random("schedules"), []member{{"conflict", `"replace"`}, {"in", `"1h"`}}
	for _, bad := range spoil(a.message(), rnd) {
		list = append(list, newDocument(bad.what, bad.names, object(append(messageMembers(&bad.message), base...))))
	}
	good := a.members()
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
