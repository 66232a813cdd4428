package kind

import (
	"regexp"
	"strings"
)

// Use is what the bridge does at one broker.
type Use struct {
	// Topics are patterns of those that are published to, where * stands for any
	// characters. They are sorted, and no two are equal.
	Topics []string
	// Consumed are the topics of compensation messages.
	Consumed []CompensationTopic
}

// CompensationTopic is a topic whose messages the bridge consumes, and makes where it is
// missing, beside the one for those that can never be done.
type CompensationTopic struct{ Topic, Dead, Group string }

// AnyUser stands in grants for a user whom the configuration does not name.
const AnyUser = "bridge"

var plain = regexp.MustCompile(`^[A-Za-z0-9_.:/=-]+$`)

// Shell is a word as a shell takes it.
func Shell(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
