// Package pause says how the pauses of a queue stand in Redis: operators write them, each
// heartbeat of an instance brings them.
package pause

import (
	"strconv"
	"strings"
	"time"
)

// Most is how many topics of a queue may be paused at a time: each heartbeat
// brings them all, and each takes a slot in every shard.
const Most = 256

// Who paused stands beside the pause, in a field that names no topic: topics have no tab.
// Earlier versions take it for a topic that no message has. It says of which pause it is,
// since these leave it when they resume.
const byField = "by\t"

// maxBy is how long the name of who has paused may be, in bytes.
const maxBy = 128

// Pause is a pause of a queue or of a topic.
type Pause struct {
	Since time.Time
	// By is who has paused it; empty where that is not known: a version before this one did.
	By string
}

// ByField is the field that says who has paused a topic, and by as it stands there.
func ByField(topic, by string) (field, text string) {
	return byField + topic, strings.ToValidUTF8(by[:min(len(by), maxBy)], "")
}

// Parse reads the hash of pauses by topic; the empty one is the whole queue.
func Parse(fields map[string]string) map[string]Pause {
	pauses := make(map[string]Pause, len(fields))
	for topic, since := range fields {
		if strings.HasPrefix(topic, byField) {
			continue
		}
		ms, _ := strconv.ParseInt(since, 10, 64) // Paused all the same.
		of, by, _ := strings.Cut(fields[byField+topic], " ")
		if of != since {
			by = ""
		}
		pauses[topic] = Pause{time.UnixMilli(ms), by}
	}
	return pauses
}
