package rabbitmq

import (
	"context"
	"fmt"
	"strings"

	"github.com/delaybridge/delaybridge/internal/check"
)

// exchangeRules are an exchange and its bindings, as the management API reports them.
type exchangeRules struct {
	Name      string         `json:"name"`
	Type      string         `json:"type"`
	Durable   bool           `json:"durable"`
	Arguments map[string]any `json:"arguments"`

	bindings []binding
}

// binding leads from an exchange to a queue, or to another exchange.
type binding struct {
	To   string `json:"destination"`
	Kind string `json:"destination_type"`
	Key  string `json:"routing_key"`
}

func (m *management) exchange(ctx context.Context, name string) (*exchangeRules, error) {
	e := &exchangeRules{}
	if err := m.get(ctx, e, "exchanges", m.vhost, name); err != nil {
		return nil, err
	}
	return e, m.get(ctx, &e.bindings, "exchanges", m.vhost, name, "bindings", "source")
}

func (e *exchangeRules) judge() []check.Finding {
	if e.Durable {
		return nil
	}
	return []check.Finding{{
		Level: check.Warning, Code: "rabbitmq_transient", Subject: "exchange " + e.Name,
		What:   "it is not durable",
		Why:    "it vanishes, with its bindings, when the broker restarts; then messages wait",
		Remedy: "declare it again, durable",
	}}
}

// route finds the queues of a topic, and reports a topic that leads nowhere. What a
// plugin's exchange does is unknown, and so is what follows another exchange.
func (e *exchangeRules) route(topic string) (queues []string, findings []check.Finding) {
	leads := false
	for _, b := range e.bindings {
		switch e.Type {
		case "direct":
			if b.Key != topic {
				continue
			}
		case "topic":
			if !matchesKey(strings.Split(b.Key, "."), strings.Split(topic, ".")) {
				continue
			}
		}
		leads = true
		if b.Kind == "queue" {
			queues = append(queues, b.To)
		}
	}
	if leads {
		return queues, nil
	}
	f := check.Finding{
		Level: check.Error, Code: "rabbitmq_unbound", Subject: "routing key " + topic,
		What:   "no queue is bound to exchange " + e.Name + " for it",
		Why:    "its messages wait, and after park_patience they go to the dead letters",
		Remedy: fmt.Sprintf("rabbitmqadmin declare binding source=%s destination=QUEUE routing_key=%s", e.Name, topic),
	}
	if alternate, ok := e.Arguments["alternate-exchange"].(string); ok {
		f.Level, f.What, f.Why = check.Warning, f.What+": it goes to the alternate exchange "+alternate, "its consumers may not read there"
	}
	return nil, []check.Finding{f}
}

// matchesKey reports whether the words of a binding with * and # match those of a
// routing key.
func matchesKey(pattern, words []string) bool {
	switch {
	case len(pattern) == 0:
		return len(words) == 0
	case pattern[0] == "#":
		return matchesKey(pattern[1:], words) || len(words) > 0 && matchesKey(pattern, words[1:])
	case len(words) == 0:
		return false
	}
	return (pattern[0] == "*" || pattern[0] == words[0]) && matchesKey(pattern[1:], words[1:])
}

// queue is a queue as the management API reports it.
type queue struct {
	Name       string         `json:"name"`
	Type       string         `json:"type"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Exclusive  bool           `json:"exclusive"`
	Arguments  map[string]any `json:"arguments"`
	Policy     map[string]any `json:"effective_policy_definition"`
	Members    []string       `json:"members"`
	Online     []string       `json:"online"`
	Messages   int64          `json:"messages"`
}

// setting is one of the queue's own, or of the policy in force.
func (q *queue) setting(name string) any {
	if own, ok := q.Arguments["x-"+name]; ok {
		return own
	}
	return q.Policy[name]
}

func (q *queue) number(name string) (n int64, ok bool) {
	value, ok := q.setting(name).(float64) // as JSON has it
	return int64(value), ok
}

// judge returns the problems of a queue.
func (q *queue) judge() []check.Finding {
	var findings []check.Finding
	add := func(level check.Level, code, what, why, remedy string) {
		findings = append(findings, check.Finding{Level: level, Code: code, Subject: "queue " + q.Name, What: what, Why: why, Remedy: remedy})
	}
	const anew = "declare it anew with x-queue-type quorum: a queue's type cannot be changed"
	switch {
	case !q.Durable || q.Exclusive || q.AutoDelete:
		add(check.Warning, "rabbitmq_transient", "it is not durable, or goes with its consumers (exclusive, auto-delete)",
			"it is gone, with what was published, when the broker restarts or its last consumer leaves", anew)
	case q.Type == "classic":
		add(check.Warning, "rabbitmq_classic", "it is a classic queue",
			"it lives on one node: what was published is lost with its disk, and it stands still with the node", anew)
	case len(q.Members) > 0 && len(q.Members) < 2:
		add(check.Warning, "rabbitmq_members", "it has 1 member",
			"what was published is lost with one disk, and it stands still with one node",
			"rabbitmq-queues grow NODE all, in a cluster of three nodes")
	case len(q.Online) < len(q.Members):
		add(check.Warning, "rabbitmq_members", fmt.Sprintf("%d of %d members are online", len(q.Online), len(q.Members)),
			"one more failure may stop it", "start the nodes that are down")
	}
	q.judgeLimits(add)
	return findings
}

// judgeLimits reports how a queue throws away what it has confirmed.
func (q *queue) judgeLimits(add func(level check.Level, code, what, why, remedy string)) {
	most, limited := q.number("max-length")
	_, limitedBytes := q.number("max-length-bytes")
	overflow, _ := q.setting("overflow").(string)
	refuses := strings.HasPrefix(overflow, "reject-publish")
	_, hasDeadLetters := q.setting("dead-letter-exchange").(string)
	switch {
	case (limited || limitedBytes) && !refuses && !hasDeadLetters:
		add(check.Warning, "rabbitmq_overflow", "it has a limit, and overflow is drop-head",
			"at its limit it throws away the oldest message that nobody has consumed, without a word", "overflow: reject-publish, by policy or x-overflow")
	case limited && refuses && q.Messages >= most:
		add(check.Error, "rabbitmq_full", fmt.Sprintf("it is full: %d messages of %d", q.Messages, most),
			"it refuses messages, which wait", "have it consumed, or raise max-length")
	}
	if ttl, ok := q.number("message-ttl"); ok && !hasDeadLetters {
		add(check.Warning, "rabbitmq_ttl", fmt.Sprintf("message-ttl is %d ms, and it has no dead-letter exchange", ttl),
			"what is not consumed in time is thrown away without a word", "dead-letter-exchange, by policy or x-dead-letter-exchange, or no TTL")
	}
	if _, ok := q.number("expires"); ok {
		add(check.Warning, "rabbitmq_expires", "it expires when it is not used",
			"it is deleted with its messages when its consumers are away for long", "declare it without x-expires")
	}
}
