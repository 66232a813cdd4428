// Package pause is the stored form of a queue's pauses: operators write them, and each
// heartbeat of an instance returns them.
package pause

import (
	"strconv"
	"strings"
	"time"
)

// Most is how many topics of a queue may be paused at a time: each heartbeat
// returns them all, and each takes a slot in every shard.
const Most = 256

// The author of a pause has a field beside the pause, whose name is no topic because it
// has a tab. Earlier versions take it for a topic without messages, and leave it when
// they resume, so it also names the pause to which it belongs.
const byField = "by\t"

// Changes is the field that counts the calls which pause or resume. It has the form of an author's, so
// that earlier versions take it for no pause; no topic is a tab.
const Changes = byField + "\t"

// maxBy is how long the name of who has paused may be, in bytes.
const maxBy = 128

// Pause is a pause of a queue or of a topic.
type Pause struct {
	Since time.Time
	// By is who has paused it; empty if an earlier version did, which does not record that.
	By string
}

// ByField returns the field for the author of a topic's pause, and the form of by in it.
func ByField(topic, by string) (field, text string) { return byField + topic, By(by) }

// By is the name of who has paused something as it is stored: its first 128 bytes.
func By(by string) string { return strings.ToValidUTF8(by[:min(len(by), maxBy)], "") }

// Parse decodes the hash of pauses by topic; the empty topic stands for the whole queue.
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
