package layout

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
)

// Rules are what the configuration of a queue says and its producers must know. Like
// sink and size limit they change without an epoch: whoever started last with a
// configuration has set them, and others learn of it within ten seconds.
type Rules struct {
	// Topics are those that the queue takes.
	Topics message.Topics `json:"topics,omitempty"`
	// History says which ends of messages are remembered.
	History History `json:"history,omitzero"`
}

// History limits how many ends of messages a queue remembers; the zero value is none.
type History struct {
	// Count is how many, over all shards: each has its even part.
	Count int `json:"count"`
	// Age is for how long.
	Age time.Duration `json:"age"`
}

// IsKept reports whether the queue remembers any ends.
func (h History) IsKept() bool { return h.Count > 0 && h.Age > 0 }

// historyOfShard is the limit of one shard of the layout, as the scripts take it: how many ends,
// and for how many milliseconds.
func (l *Layout) historyOfShard() string {
	return strconv.Itoa(l.EndsOfShard()) + " " + strconv.FormatInt(l.Rules.History.Age.Milliseconds(), 10)
}

// WithHistory adds the keys of the history, where the queue keeps one, to those of a script
// that are of shard k, and returns the limits of the shard's part as the scripts take them.
func (l *Layout) WithHistory(k keys.Shard, names []string) (all []string, limits string) {
	if !l.Rules.History.IsKept() {
		return names, ""
	}
	ended, ends := k.History()
	return append(names, ended, ends), l.historyOfShard()
}

// EndsOfShard is how many ends one shard of the layout remembers at the most.
func (l *Layout) EndsOfShard() int {
	if !l.Rules.History.IsKept() {
		return 0
	}
	return (l.Rules.History.Count + l.Shards - 1) / l.Shards
}

// encode is the rules as the layout's key has them: empty where there are none.
func (r Rules) encode() (string, error) {
	text, err := json.Marshal(r)
	if string(text) == "{}" {
		return "", nil
	}
	return string(text), err
}

func parseRules(text string) (r Rules, err error) {
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("rules: %w", err)
	}
	return r, nil
}
