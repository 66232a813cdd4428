// Package grants tells the least that a broker must allow the bridge, by its
// configuration: as commands or settings for the broker's own tools. Where a queue
// names no topics, that is any topic.
package grants

import (
	"cmp"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/delaybridge/delaybridge/internal/compensation/consumer"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// use is what the bridge does at one broker.
type use struct {
	user string
	// topics are patterns of those that are published to, where * stands for any
	// characters.
	topics []string
	// consumed are the topics of compensation messages.
	consumed []compensated
}

// compensated is a topic whose messages the bridge consumes, and makes where it is
// missing, beside the one for those that can never be done.
type compensated struct{ topic, dead, group string }

// Lines are what an administrator of the sink's broker is to do; those that begin with
// a # are remarks.
func Lines(cfg *config.Config, sink string) []string {
	u := useOf(cfg, sink)
	switch s := cfg.Sinks[sink]; s.Type {
	case message.Kafka:
		return kafka(u, strings.Join(s.Brokers, ","))
	case message.NATS:
		return nats(u)
	case message.RabbitMQ:
		return rabbitmq(u, s)
	}
	return nil
}

func useOf(cfg *config.Config, sink string) (u use) {
	u.user = userOf(cfg.Sinks[sink])
	for _, name := range slices.Sorted(maps.Keys(cfg.Queues)) {
		queue := cfg.Queues[name]
		if queue.Sink != sink {
			continue
		}
		if len(queue.Topics) == 0 {
			u.topics = append(u.topics, "*")
		}
		u.topics = append(u.topics, queue.Topics...)
		if queue.Canary.Topic != "" {
			u.topics = append(u.topics, queue.Canary.Topic)
		}
		if topic := cfg.CompensationTopic(name); topic != "" {
			dead := consumer.DeadTopic(topic)
			u.consumed = append(u.consumed, compensated{topic: topic, dead: dead, group: consumer.Group(cfg.Prefix, name)})
			u.topics = append(u.topics, dead)
		}
	}
	slices.Sort(u.topics)
	u.topics = slices.Compact(u.topics)
	if slices.Contains(u.topics, "*") {
		u.topics = []string{"*"}
	}
	return u
}

// userOf is who the sink logs in as.
func userOf(s config.Sink) string {
	user := s.Login.User
	if s.SASL != nil {
		user = s.SASL.Username
	}
	for _, text := range s.URLs() {
		if u, err := url.Parse(text); err == nil && u.User != nil {
			user = cmp.Or(user, u.User.Username())
		}
	}
	return cmp.Or(user, "bridge")
}

// kafka allows to write: that implies to describe.
func kafka(u use, brokers string) []string {
	add := "kafka-acls --bootstrap-server " + brokers + " --add --allow-principal " + shell("User:"+u.user)
	var lines []string
	for _, pattern := range u.topics {
		prefix, rest, isPattern := strings.Cut(pattern, "*")
		switch {
		case !isPattern:
			lines = append(lines, add+" --operation Write --topic "+shell(pattern))
		case prefix == "":
			lines = append(lines, add+" --operation Write --topic '*'")
		default:
			if rest != "" {
				lines = append(lines, "# Kafka has prefixes only, so this is more than "+pattern+":")
			}
			lines = append(lines, add+" --operation Write --resource-pattern-type prefixed --topic "+shell(prefix))
		}
	}
	for _, c := range u.consumed {
		lines = append(lines,
			add+" --operation Read --topic "+shell(c.topic),
			add+" --operation Read --group "+shell(c.group),
			"# Only where the bridge is to make these topics:",
			add+" --operation Create --topic "+shell(c.topic),
			add+" --operation Create --topic "+shell(c.dead))
	}
	return lines
}

// nats allows to publish, and to hear the answers.
func nats(u use) []string {
	publish := []string{"$JS.API.INFO", "$JS.API.STREAM.NAMES"} // Whether there is a JetStream, and why nobody has answered.
	var lines []string
	for _, pattern := range u.topics {
		subject := subjectOf(pattern)
		if subject != pattern && strings.TrimSuffix(subject, ">") != strings.TrimSuffix(pattern, "*") {
			lines = append(lines, "# NATS has whole tokens only, so "+subject+" is more than "+pattern+".")
		}
		publish = append(publish, subject)
	}
	for _, c := range u.consumed {
		stream, dead := strings.ReplaceAll(c.topic, ".", "-"), strings.ReplaceAll(c.dead, ".", "-")
		lines = append(lines, "# Where other streams than "+stream+" and "+dead+" bind these subjects, put their names; the bridge makes none then.")
		publish = append(publish,
			"$JS.API.STREAM.CREATE."+stream, "$JS.API.STREAM.CREATE."+dead,
			"$JS.API.CONSUMER.CREATE."+stream+"."+c.group+"."+c.topic, "$JS.API.CONSUMER.MSG.NEXT."+stream+"."+c.group,
			"$JS.ACK."+stream+"."+c.group+".>")
	}
	return append(lines,
		"{user: "+u.user+", password: PASSWORD, permissions: {",
		"  publish: {allow: ["+quoted(publish)+"]},",
		`  subscribe: {allow: ["_INBOX.>"]}}}`)
}

// subjectOf is the narrowest subject of NATS that covers the pattern.
func subjectOf(pattern string) string {
	before, _, isPattern := strings.Cut(pattern, "*")
	if !isPattern {
		return pattern
	}
	return before[:strings.LastIndexByte(before, '.')+1] + ">"
}

func quoted(list []string) string { return `"` + strings.Join(list, `", "`) + `"` }

// rabbitmq allows to write to the exchange; topics can be limited further where that is
// a topic exchange.
func rabbitmq(u use, s config.Sink) []string {
	of := " -p " + shell(vhostOf(s)) + " " + shell(u.user) + " "
	r := resourcesOf(u, s)
	lines := []string{"rabbitmqctl set_permissions" + of + "'" + r.configure + "' '" + r.write + "' '" + r.read + "'"}
	exchange := s.Exchange
	if s.Exchange == "" || slices.Contains(u.topics, "*") {
		return lines
	}
	topics := make([]string, len(u.topics))
	for i, pattern := range u.topics {
		topics[i] = strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*")
	}
	bound := []string{}
	for _, c := range u.consumed {
		bound = append(bound, c.topic, c.dead)
	}
	return append(lines, "# Only where "+exchange+" is a topic exchange:",
		"rabbitmqctl set_topic_permissions"+of+shell(exchange)+" '^("+strings.Join(topics, "|")+")$' '"+names(bound)+"'")
}

// resources are expressions for the names of exchanges and queues.
type resources struct{ configure, write, read string }

func resourcesOf(u use, s config.Sink) resources {
	exchange := cmp.Or(s.Exchange, "amq.default")
	var configure, read []string
	write := []string{exchange}
	for _, c := range u.consumed {
		configure = append(configure, c.topic, c.dead)
		read = append(read, c.topic)
		if s.Exchange != "" { // The queues are bound to it.
			write, read = append(write, c.topic, c.dead), append(read, exchange)
		}
	}
	return resources{names(configure), names(write), names(read)}
}

// vhostOf is the virtual host of the sink's first URL.
func vhostOf(s config.Sink) string {
	for _, text := range s.URLs() {
		if u, err := url.Parse(text); err == nil && len(u.Path) > 1 {
			return u.Path[1:]
		}
	}
	return "/"
}

// names is an expression for these names and no others: empty for none.
func names(list []string) string {
	if len(list) == 0 {
		return ""
	}
	list = slices.Clone(list)
	slices.Sort(list)
	list = slices.Compact(list)
	for i, name := range list {
		list[i] = regexp.QuoteMeta(name)
	}
	return "^(" + strings.Join(list, "|") + ")$"
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_.:/=-]+$`)

// shell is a word as a shell takes it.
func shell(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
