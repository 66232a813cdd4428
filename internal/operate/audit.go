package operate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// AuditTimeout bounds the writing down of a change.
const AuditTimeout = time.Second

// Change is one change that somebody has made, or one call that was refused.
type Change struct {
	At       string `json:"at" format:"date-time"`
	Who      string `json:"who" doc:"The name of the token; local or remote without tokens; empty if unknown; for a command, the user that ran it."`
	From     string `json:"from" doc:"The caller's address; for a command, its host."`
	Via      string `json:"via" enum:"api,command" doc:"How the change was made."`
	Instance string `json:"instance" doc:"The bridge that was called; empty for a command."`
	Action   string `json:"action"`
	What     string `json:"what" doc:"The message's id, or a filter."`
	Key      string `json:"key"`
	Topic    string `json:"topic"`
	Answer   string `json:"answer" doc:"A status, an error's code, or a tally."`
}

// ViewChange is a change as programs see it.
func ViewChange(c *inspect.Change) Change {
	return Change{
		At: Stamp(c.At), Who: c.Who, From: c.From, Via: c.Via, Instance: c.Instance,
		Action: c.Action, What: c.What, Key: c.Key, Topic: c.Topic, Answer: c.Answer,
	}
}

// Tally counts answers.
type Tally map[string]int

// String is the tally in the order of the names: "created 3, duplicate 1".
func (t Tally) String() string {
	parts := make([]string, 0, len(t))
	for _, answer := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, fmt.Sprintf("%s %d", answer, t[answer]))
	}
	return strings.Join(parts, ", ")
}
