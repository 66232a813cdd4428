// Package sound says what must hold between the keys of a shard: invariant I6, and that
// a history is whole and within its queue's limits. It is pure; callers read the keys,
// atomically or not. mend.lua judges again by the same kinds, and repairs.
package sound

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Kind is a kind of fault.
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
	// StrayAttempts are attempts without their message.
	StrayAttempts Kind = "stray_attempts"
	// Unreadable cannot be decoded: the message, its attempts, or its dead letter.
	Unreadable Kind = "unreadable"
	// WrongHome is a message in a shard where no call looks for it.
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
	Counters    Kind = "counters"     // accepted messages are not the sum of present and ended ones
	Lost        Kind = "lost"         // a shard in use without an epoch, or with another one than the layout
)

// The kinds of the history, by the id of the message that ended, and as a whole. An end does
// not say to which life of the id it belongs, so an end beside a live message is no fault.
const (
	NoEnd       Kind = "no_end"       // it is listed, and the end itself is lost
	UnlistedEnd Kind = "unlisted_end" // it is not listed, so nobody finds it, and it would stay for ever
	ManyEnds    Kind = "many_ends"    // there are more than the queue keeps
)

// Finding is one inconsistency.
type Finding struct {
	Kind Kind
	// Name is the message's identity in Redis, see [message.Member], or a token; empty
	// for a shard or its history.
	Name string
	// Tag is that of NoTag and StrayTag.
	Tag string
	// Detail adds details, if there are any.
	Detail string
}

func (f Finding) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %q %s %s", f.Kind, f.Name, f.Tag, f.Detail))
}

// Message is what the keys of a shard have under one identity. A nil string is missing.
type Message struct {
	Member                   string
	Waits, Dead              bool
	Claims                   int
	Stored, Attempts, Letter *string
}

// Check returns all faults of the message, in the order in which they are repaired.
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

// unreadable returns why parts cannot be decoded. The dead letter of a message that has
// lost its body says so in its reason.
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

// stored returns the stored message, live or dead; empty if there is none.
func (m *Message) stored() string {
	switch {
	case m.Stored != nil:
		return *m.Stored
	case m.Letter != nil:
		return message.StoredOf(*m.Letter)
	}
	return ""
}

// lifeLength is the length of the part of a stored message that differs between two
// lives of an identity: version, scheduled-at, token.
const lifeLength = 30

// Life identifies this life of the identity; empty if there is none.
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

// TagEntry returns the index's entry for a message with the tag.
func TagEntry(tag, member string) string { return tag + "\x00" + member }

// Unpaired returns the names that only one of two keys has, with the kind for each
// side.
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

// ends are the counters of messages that have ended.
var ends = []string{"published", "cancelled", "replaced", "purged", "dropped"}

// Sum compares the accepted messages with the ended and the present ones, by the counters
// of the shard's meta.
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
