// Package sound says what must hold of what the keys of a shard have: invariant I6, and
// that a history is whole and no longer than its queue keeps it.
// It is pure: who reads the keys, and at one instant or not, is the affair of its
// callers. mend.lua judges again by the same kinds, and mends.
package sound

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Kind is what is wrong with an entry.
type Kind string

// The kinds of a message.
const (
	// NoBody waits without a body, ClaimedNoBody is in flight without one.
	NoBody        Kind = "no_body"
	ClaimedNoBody Kind = "claimed_no_body"
	// Nowhere has a body, and neither waits nor is in flight nor dead.
	Nowhere Kind = "nowhere"
	// WaitsClaimed waits and is in flight, ClaimedTwice is in two claims.
	WaitsClaimed Kind = "waits_claimed"
	ClaimedTwice Kind = "claimed_twice"
	// AliveAndDead has a body, and a dead letter.
	AliveAndDead Kind = "alive_and_dead"
	// NoLetter is listed among the dead without a letter, UnlistedLetter is a letter
	// that is not listed.
	NoLetter       Kind = "no_letter"
	UnlistedLetter Kind = "unlisted_letter"
	// StrayAttempts are those of a message that is not there.
	StrayAttempts Kind = "stray_attempts"
	// Unreadable cannot be decoded: the message, its attempts, or its dead letter.
	Unreadable Kind = "unreadable"
	// WrongHome is a message that lives in a shard where nobody looks for it.
	WrongHome Kind = "wrong_home"
	// NoTag lacks the entry of one of its tags, StrayTag is an entry of a message that
	// lacks the tag, or is not there.
	NoTag    Kind = "no_tag"
	StrayTag Kind = "stray_tag"
)

// The kinds of a claim or a tombstone, by its token, and of a shard as a whole.
const (
	NoDeadline  Kind = "no_deadline"  // a claim that nobody would reclaim
	NoClaim     Kind = "no_claim"     // a deadline of no claim
	NoExpiry    Kind = "no_expiry"    // a tombstone that would stay for ever
	NoTombstone Kind = "no_tombstone" // an expiry of no tombstone
	Counters    Kind = "counters"     // what was accepted is not what is there and has ended
	Lost        Kind = "lost"         // a shard in use without an epoch, or with another one than the layout
)

// The kinds of the history, by the id of the message that ended, and as a whole. An end
// does not say which life of the id it was of: beside a message that lives it is none.
const (
	NoEnd       Kind = "no_end"       // it is listed, and what became of the message is lost
	UnlistedEnd Kind = "unlisted_end" // it is not listed, so nobody tells it, and it would stay for ever
	ManyEnds    Kind = "many_ends"    // there are more than the queue keeps
)

// Finding is one thing that is wrong.
type Finding struct {
	Kind Kind
	// Name is the message's identity in Redis, see [message.Member], or a token; empty
	// of a shard or its history.
	Name string
	// Tag is that of NoTag and StrayTag.
	Tag string
	// Detail says more, where there is more to say.
	Detail string
}

func (f Finding) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %q %s %s", f.Kind, f.Name, f.Tag, f.Detail))
}

// Message is what the keys of a shard have under one identity. A nil string is not there.
type Message struct {
	Member                   string
	Waits, Dead              bool
	Claims                   int
	Stored, Attempts, Letter *string
}

// Check returns all that is wrong with the message, what is mended first before the rest.
func (m *Message) Check() (found []Finding) {
	lives, claimed := m.Stored != nil, m.Claims > 0
	for _, rule := range []struct {
		broken bool
		kind   Kind
	}{
		{m.Waits && claimed, WaitsClaimed},
		{m.Waits && !lives && !claimed, NoBody},
		{claimed && !lives, ClaimedNoBody},
		{m.Claims > 1, ClaimedTwice},
		{lives && !m.Waits && !claimed && !m.Dead && m.Letter == nil, Nowhere},
		{lives && (m.Dead || m.Letter != nil), AliveAndDead},
		{m.Dead && m.Letter == nil, NoLetter},
		{!m.Dead && m.Letter != nil, UnlistedLetter},
		{m.Attempts != nil && !lives && !m.Waits && !claimed, StrayAttempts},
	} {
		if rule.broken {
			found = append(found, Finding{Kind: rule.kind, Name: m.Member})
		}
	}
	for _, err := range m.unreadable() {
		found = append(found, Finding{Kind: Unreadable, Name: m.Member, Detail: err.Error()})
	}
	return found
}

// unreadable is what cannot be decoded. A letter of a message that has lost its body says
// so by its reason.
func (m *Message) unreadable() (errs []error) {
	if m.Stored != nil {
		errs = append(errs, new(message.Message).Decode(*m.Stored))
	}
	if m.Attempts != nil {
		_, err := message.ParseHistory(*m.Attempts)
		errs = append(errs, err)
	}
	if m.Letter != nil {
		if letter := message.DecodeDeadLetter(m.Member, *m.Letter); !errors.Is(letter.Err, message.ErrMissingBody) {
			errs = append(errs, letter.Err)
		}
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// stored is how the message is stored, alive or dead; empty where it is not.
func (m *Message) stored() string {
	switch {
	case m.Stored != nil:
		return *m.Stored
	case m.Letter != nil:
		return message.StoredOf(*m.Letter)
	}
	return ""
}

// lifeLength is how much of what is stored tells one life of an identity from another:
// version, scheduled-at, token.
const lifeLength = 30

// Life tells this life of the identity from another one; empty where there is none.
func (m *Message) Life() string {
	stored := m.stored()
	return stored[:min(len(stored), lifeLength)]
}

// Tags are those that the index should have for the message.
func (m *Message) Tags() []string {
	var decoded message.Message
	_ = decoded.Decode(m.stored()) // Check says where it is unreadable.
	return decoded.Tags()
}

// TagEntry is how the index has a message that has the tag.
func TagEntry(tag, member string) string { return tag + "\x00" + member }

// Unpaired are the names that only one of two keys has: each kind says what a name is
// whose partner is missing.
func Unpaired[A, B any](a map[string]A, onlyA Kind, b map[string]B, onlyB Kind) (found []Finding) {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[name]; !ok {
			found = append(found, Finding{Kind: onlyA, Name: name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if _, ok := a[name]; !ok {
			found = append(found, Finding{Kind: onlyB, Name: name})
		}
	}
	return found
}

// ends are the counters of messages that are there no more.
var ends = []string{"published", "cancelled", "replaced", "purged", "dropped"}

// Sum compares what was accepted with what has ended and what is there, by the counters of
// the shard's meta.
func Sum(counters map[string]int64, present int64) (found []Finding) {
	var ended int64
	for _, name := range ends {
		ended += counters[name]
	}
	if accepted := counters["scheduled"]; accepted != present+ended {
		detail := fmt.Sprintf("%d were accepted, but %d are there and %d have ended", accepted, present, ended)
		found = append(found, Finding{Kind: Counters, Detail: detail})
	}
	return found
}
