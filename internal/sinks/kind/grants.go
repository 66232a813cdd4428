package kind

import (
	"regexp"
	"strings"
)

// Use is how the bridge uses one broker.
type Use struct {
	// Topics are patterns of the topics that are published to, where * stands
	// for any characters. They are sorted and unique.
	Topics []string
	// Consumed are the topics of compensation messages.
	Consumed []CompensationTopic
	// Inlets are what inlets consume.
	Inlets []Inlet
}

// Inlet is a topic that others have made, and whose messages the bridge consumes. Stream is
// where it is, at a broker that has streams.
type Inlet struct{ Topic, Stream, Group string }

// CompensationTopic is a topic whose messages the bridge consumes. The bridge makes it,
// and the one for messages that can never be redone, if they are missing.
type CompensationTopic struct{ Topic, Dead, Group string }

// AnyUser stands in grants for a user that the configuration does not name.
const AnyUser = "bridge"

var plain = regexp.MustCompile(`^[A-Za-z0-9_.:/=-]+$`)

// Shell quotes a word for a shell.
func Shell(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
