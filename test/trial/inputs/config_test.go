package inputs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/delaybridge/delaybridge/internal/config"
)

// section is a part of a configuration file; YAML takes JSON as it is.
type section = map[string]any

// goodConfig has each section once, and each kind of sink.
func goodConfig() section {
	return section{
		"redis": section{"url": "redis://127.0.0.1:6379/0"},
		"queues": section{
			"orders": section{"sink": "nats", "topics": []any{"order.*"}, "canary": section{"topic": "order.canary"}},
			"bills":  section{"sink": "kafka", "durability": "replicas"}, "mails": section{"sink": "rabbitmq"},
		},
		"sinks": section{
			"nats":     section{"type": "nats", "url": "nats://127.0.0.1:4222"},
			"rabbitmq": section{"type": "rabbitmq", "url": "amqp://127.0.0.1:5672"},
			"streams":  section{"type": "redis", "url": "redis://127.0.0.1:6379/1"},
			"kafka": section{"type": "kafka", "brokers": []any{"127.0.0.1:9092"}, "sasl": section{
				"mechanism": "plain", "username": "a", "password": "b",
			}},
		},
		"outbox": section{"main": section{"driver": "postgres", "dsn": "postgres://a:b@127.0.0.1:5432/c"}},
		"admin":  section{}, "poller": section{}, "log": section{}, "encryption": section{},
	}
}

// configAnswer loads a configuration as the bridge does at its start.
func configAnswer(text string, environ []string) answer {
	isRefusal := func(err error) bool { _, is := errors.AsType[*config.Problem](err); return is }
	return called(isRefusal, func() error {
		_, err := config.Parse([]byte(text), environ)
		return err
	})
}

// set returns the configuration with one value changed; the path must lead there.
func set(c section, path []string, value any) section {
	changed := maps.Clone(c)
	if len(path) == 1 {
		changed[path[0]] = value
		return changed
	}
	below, _ := c[path[0]].(section)
	if below == nil {
		below = section{}
	}
	changed[path[0]] = set(below, path[1:], value)
	return changed
}

func yamlOf(c section) string {
	text, _ := json.Marshal(c) // It is made of texts and numbers.
	return string(text)
}

// configEntrance is the configuration's file.
type configEntrance struct{ seed }

func (e configEntrance) name() string { return "config" }

func (e configEntrance) inputs(context.Context) (list []input, err error) {
	good := goodConfig()
	if a := configAnswer(yamlOf(good), nil); a.text != "no error" {
		return nil, fmt.Errorf("the good configuration: %s", a.text)
	}
	add := func(path []string, value any) {
		c, name := set(good, path, value), strings.Join(path, ".")
		list = append(list, input{fmt.Sprintf("%s: %.80v", name, value), []string{name}, func(context.Context) answer {
			return configAnswer(yamlOf(c), nil)
		}})
	}
	for _, l := range configLeaves() {
		for _, value := range l.badValues() {
			add(l.path, value)
		}
	}
	for _, s := range configSections() {
		add(append(s, "unknown"), 1)
		for _, value := range []any{"text", 7, true, []any{}} {
			if len(s) > 0 {
				add(s, value)
			}
		}
	}
	for _, bad := range badSettings() {
		add(strings.Split(bad.path, "."), bad.value)
	}
	for _, name := range []string{"", "Orders", "-a", "a.b", "a b", "ä", strings.Repeat("a", 64), "<<"} {
		for _, above := range []string{"queues", "sinks"} {
			c := set(good, []string{above, name}, section{})
			list = append(list, input{fmt.Sprintf("%s.%q", above, name), []string{above}, func(context.Context) answer { return configAnswer(yamlOf(c), nil) }})
		}
	}
	return append(list, e.badFiles(good)...), nil
}

// setting is a value that is wrong by what it means.
type setting struct {
	path  string
	value any
}

func badSettings() (list []setting) {
	add := func(path string, values ...any) {
		for _, value := range values {
			list = append(list, setting{path, value})
		}
	}
	add("redis.url", "", "http://a", "redis://", "127.0.0.1:6379", "redis://a/b", "redis://a/-1", "redis://a?pool_size=1", "redis://%zz", "unix://", "redis://a/99999999999")
	add("prefix", "", "a b", "{a}", "-a", "ä", strings.Repeat("a", 64))
	add("instance", "a b", "ä", "-", strings.Repeat("a", 129))
	add("admin.listen", "8080", "a", ":65536", ":-1", ":http", "127.0.0.1", "[::1", "a:1:2")
	add("admin.probes", "8080", ":99999", "127.0.0.1:8080")
	add("admin.auth.tokens_file", "/nonexistent/tokens")
	add("admin.auth.issuers.corp.url", "", "a.example", "http://a.example", "https://", "https://u:p@a.example", "https://a.example#a", "https://a.example?a=b", "file:///a")
	add("admin.auth.issuers.corp.jwks_url", "http://a.example", "file:///etc/passwd")
	add("admin.auth.issuers.corp.jwks_file", "/nonexistent/keys")
	add("admin.auth.issuers.corp.algorithms", []any{"HS256"}, []any{"none"}, []any{""})
	add("admin.auth.issuers.corp.callers", []any{}, []any{"viewer"}, []any{"sub=a"}, []any{"sub= viewer"}, []any{"=a viewer"}, []any{"sub=a admin"}, []any{"sub=a viewer rate=0"}, []any{`"sub=a viewer`}, []any{""})
	add("admin.auth.certificates", []any{"viewer"}, []any{"cn=a viewer"})
	add("encryption.keys", "/nonexistent/keys")
	add("queues.orders.sink", "", "nothing", "NATS")
	add("queues.orders.topics", []any{"a b"}, []any{""}, []any{"a..b"}, []any{"$SYS"}, []any{nil})
	add("queues.orders.canary.topic", "a b", "elsewhere", "*")
	add("queues.orders.rate.topics", []any{"a"}, []any{"a=0"}, []any{"a=-1"}, []any{"a=NaN"}, []any{"a=1000001"}, []any{"=1"}, []any{"a b=1"}, []any{"a=1", "a=2"})
	add("queues.orders.compensation", "a b", "*", "delay.compensation.a b")
	add("sinks.nats.url", "", "http://a", "nats://", "nats://a,http://b", "nats://%zz", ",")
	add("sinks.rabbitmq.url", "", "http://a", "amqp://")
	add("sinks.rabbitmq.exchange", strings.Repeat("a", 256))
	add("sinks.rabbitmq.management", "a", "ftp://a", "http://")
	add("sinks.kafka.brokers", []any{}, []any{"a"}, []any{"a:0"}, []any{"a:65536"}, []any{":9092"}, []any{""})
	add("sinks.kafka.publish_timeout", "21s")
	add("sinks.streams.url", "http://a", "redis://", "redis://a?max_retries=3", "redis://a/x", "redis://%zz")
	add("poller.max_sleep", "2501ms")
	add("outbox.main.table", "a b", "a;b", "a.b.c", "", `a"b`)
	add("outbox.main.dsn", "", "mysql", "postgres://%zz", "postgres://a:b@c:port/d")
	add("outbox.main.horizon", "1999ms", "1ms")
	add("queues.orders.retry.initial", "601s")
	return list
}

// badFiles are no YAML of one section.
func (e configEntrance) badFiles(good section) (list []input) {
	text := yamlOf(good)
	add := func(what, text string, names ...string) {
		list = append(list, input{fmt.Sprintf("%s %.60q", what, text), append(names, "line "), func(context.Context) answer { return configAnswer(text, nil) }})
	}
	add("empty", "", "queues")
	add("comment", "# nothing\n", "queues")
	for _, broken := range []string{"\t", "a", "7", "[]", "- a", text + "}", text + "\n---\n" + text, "a: b: c", "'", "\"", "&a *a", "*a", "!!binary x", "%YAML 9.9", "a: |\n\x01"} {
		add("no section", broken)
	}
	for i := 1; i < len(text); i += 7 {
		add(fmt.Sprint("cut at ", i), text[:i])
	}
	for _, bad := range slices.Concat(controls("\t\u0085"), notUTF8(e.random("config"))) {
		if !strings.ContainsAny(bad, "\r\n") {
			add("control or no UTF-8", "prefix: a # "+bad+"\n"+text)
		}
	}
	add("key twice", `{"prefix": "a", `+text[1:len(text)-1]+`, "prefix": "b"}`, "prefix")
	add("merge", "<<: {prefix: a}\n", "<<")
	add("tag", "prefix: !!str a\n", "prefix")
	add("alias bomb", "a: &a [a]\nb: &b [*a, *a]\nqueues: *b\n", "queues")
	add("reference", `{"prefix": "${NOT_SET}", `+text[1:], "prefix")
	add("reference", `{"prefix": "${file:/nonexistent}", `+text[1:], "prefix")
	add("reference", `{"prefix": "${", `+text[1:], "prefix")
	return list
}
