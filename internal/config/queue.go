package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Late is how late a message may be published, counted from its due time, and what
// becomes of one that is later. After is 0 if there is no limit.
type Late struct {
	After time.Duration      `yaml:"after" doc:"How long after its due time a message may be published. Default: no limit."`
	Then  message.LateAction `yaml:"then" default:"publish" enum:"publish,dead,drop" doc:"What happens to a later message: it is published all the same, goes to the dead letters, or is dropped, counted and logged."`
}

// DeadLimits limits the dead letters. 0 is no limit.
type DeadLimits struct {
	Keep time.Duration `yaml:"keep" default:"0s" min:"0s" doc:"How long a dead letter stays. 0s: for ever."`
	Max  int           `yaml:"max" default:"0" min:"0" doc:"Most dead letters of the queue. 0: no limit."`
}

// Budget limits how many bytes a queue takes in Redis. 0 is no limit.
type Budget struct {
	Bytes  Size         `yaml:"bytes" default:"0" min:"0" doc:"About how many bytes of Redis the queue may take, including dead letters: bytes, or with a unit, as 512MiB. 0: no limit."`
	Policy BudgetPolicy `yaml:"policy" default:"refuse" enum:"refuse,warn" doc:"What happens beyond that: producers are refused, or only the log and the metrics say it."`
}

// BudgetPolicy is what happens where a budget is used up.
type BudgetPolicy string

// The policies.
const (
	BudgetRefuse BudgetPolicy = "refuse"
	BudgetWarn   BudgetPolicy = "warn"
)

// History limits how many ended messages are remembered, and how long. Count 0 is none.
type History struct {
	Count int           `yaml:"count" default:"0" min:"0" max:"100000000" doc:"Most messages that are remembered, over all shards; each shard has an even part. 0: none."`
	Age   time.Duration `yaml:"age" default:"24h" min:"1s" doc:"How long a message is remembered."`
}

// Canary says where the bridge sends messages of its own through the queue.
type Canary struct {
	// Topic is empty if there is no canary.
	Topic string        `yaml:"topic" doc:"Topic of the canaries, used for nothing else; nobody needs to consume it. Default: no canaries."`
	Every time.Duration `yaml:"every" default:"30s" min:"1s" max:"5m" doc:"How often one of the instances schedules a canary; it schedules none while the previous one waits."`
}

// Rate is how many messages a second are published at most, over all shards and
// instances. 0 is no limit.
type Rate struct {
	Messages int      `yaml:"messages" default:"0" min:"0" max:"1000000" doc:"Most messages per second of the queue, over all shards and instances. 0: no limit."`
	Topics   []string `yaml:"topics" doc:"Most messages per second of single topics, TOPIC=N each. Faster messages wait in due order, out of the way of other topics."`
}

// ByTopic are the rates of the topics. They were checked by [Load].
func (r Rate) ByTopic() map[string]int {
	rates := make(map[string]int, len(r.Topics))
	for _, text := range r.Topics {
		if topic, n, err := parseTopicRate(text); err == nil {
			rates[topic] = n
		}
	}
	return rates
}

// maxTopicRate is the most of a topic's rate.
const maxTopicRate = 1_000_000

func parseTopicRate(text string) (topic string, n int, err error) {
	at := strings.LastIndexByte(text, '=')
	if at < 1 {
		return "", 0, errors.New("give TOPIC=N, N messages a second")
	}
	if n, err = strconv.Atoi(text[at+1:]); err != nil || n < 1 || n > maxTopicRate {
		return "", 0, fmt.Errorf("%q is not a rate, allowed are 1 to %d messages a second", text[at+1:], maxTopicRate)
	}
	return text[:at], n, nil
}
