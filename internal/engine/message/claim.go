package message

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// NewInstance makes the identity of a process: its configured name and a boot
// id made now, "name/boot". A process that comes back under its name is a
// different instance; the claims of the earlier one are not its own.
func NewInstance(name string) string {
	var boot [6]byte
	_, _ = rand.Read(boot[:]) // It never fails.
	return name + "/" + hex.EncodeToString(boot[:])
}

// InstanceName is the configured name in an instance's identity.
func InstanceName(instance string) string {
	if at := strings.LastIndexByte(instance, '/'); at >= 0 {
		return instance[:at]
	}
	return instance
}

// ClaimToken identifies one claim of one shard: the instance that made it and a
// number that the instance raises by one for each new claim of that shard. The
// same token asks for the same batch again, so a claim whose answer was lost
// does no harm.
type ClaimToken struct {
	// Instance is the identity, see [NewInstance].
	Instance string
	Number   uint64
}

// String is the token as Redis stores it.
func (t ClaimToken) String() string {
	return t.Instance + "|" + strconv.FormatUint(t.Number, 10)
}

// ParseClaimToken is the inverse of [ClaimToken.String]; invalid text gives the zero value.
func ParseClaimToken(s string) ClaimToken {
	at := strings.LastIndexByte(s, '|')
	number, err := strconv.ParseUint(s[at+1:], 10, 64)
	if at < 0 || err != nil {
		return ClaimToken{}
	}
	return ClaimToken{Instance: s[:at], Number: number}
}

// ClaimRequest asks for due messages of one shard and renews the holder's
// lease, even if it asks for none.
type ClaimRequest struct {
	Token ClaimToken
	// Max is how many messages to take: 0 (renew only) to 500.
	Max int
	// MaxBytes limits their bytes, except that the first is always taken; 0
	// means the most that a claim may take.
	MaxBytes int
	// Slot is where to take them from: 0 for messages that are not parked, else
	// a slot of parked messages, see [ParkedRoute].
	Slot int
	// Timeout is how long the claim lasts: past it, it may be reclaimed.
	Timeout time.Duration
	// Lease is how long nobody else may poll the shard.
	Lease time.Duration
	// Live are this instance's unsettled claims of the shard: their deadlines are
	// extended to Timeout from now.
	Live []ClaimToken
	// Quiet says that nothing is expected to be due: the claim is made for the
	// lease, and may travel together with those of other shards.
	Quiet bool
	// Free are slots to forget if nothing is parked in them any longer.
	Free []int
	// Seize, if not empty, is the Holder of an earlier answer that has not changed for
	// longer than a lease. That lease counts as lapsed, whatever Redis' clock says.
	Seize string
}

// ClaimState is the answer to a claim.
type ClaimState int

// The answers to a claim.
const (
	// ClaimGranted: the lease is renewed and Messages, perhaps none, are ours.
	ClaimGranted ClaimState = iota
	// ClaimHeld: another instance holds the shard for HeldFor.
	ClaimHeld
	// ClaimReclaimFirst: the shard is ours now, but claims of an earlier holder
	// are left: reclaim them, then claim with the same token again. Nothing was taken.
	ClaimReclaimFirst
	// ClaimOutdated: the number was used before and its claim has ended, or a
	// later number was used. Nothing was taken.
	ClaimOutdated
	// ClaimNoLayout: the shard has no meta, as after a wipe of Redis or before
	// the layout was made. Nothing was taken.
	ClaimNoLayout
)

// Claim is a batch of messages taken from one shard, in due order.
type Claim struct {
	State    ClaimState
	Token    ClaimToken
	Messages []ClaimedMessage
	// More is set if the batch ended at a limit: more may be due already. Of a slot, it is
	// set where anything is left in it, due or not.
	More bool
	// Now is Redis' clock when the claim ran, in whole milliseconds.
	Now time.Time
	// NextDue is the due time of the first message still waiting; zero if none waits.
	NextDue time.Time
	// Epoch is the shard's epoch, if the claim was granted. If it differs from
	// the layout's, the layout has changed.
	Epoch string
	// HeldFor is how long another instance's lease still lasts. Holder names that
	// lease: it changes each time the lease is renewed.
	HeldFor time.Duration
	Holder  string
	// Strays are claims of this instance that the request did not list: a failover
	// has undone their settlement, or their answers were lost.
	Strays []ClaimToken
	// Last is the number of this instance's previous claim of the shard, according to Redis.
	// If the instance knows a higher one, a failover has taken the shard back to an earlier
	// state.
	Last uint64
}

// MaxSlot is the highest slot of parked messages in a shard.
const MaxSlot = 2047

// ParkedRoute is an unavailable route, whose messages wait in a slot of a
// shard, out of the others' way.
type ParkedRoute struct {
	// Slot is from 1 to [MaxSlot].
	Slot int
	// Route and Reason are the sink's, for operators; empty if they were lost.
	Route, Reason string
	// Since is when the route became unavailable, by Redis' clock.
	Since time.Time
	// Messages is how many are parked; Oldest is the promised due time of the first.
	Messages int
	Oldest   time.Time
}

// Reclaim says which claims of a shard to reclaim.
type Reclaim struct {
	// Instance is the caller's identity: nothing is reclaimed unless it holds the shard.
	Instance string
	// Foreign selects all claims of other instances; otherwise those past their deadlines are reclaimed.
	Foreign bool
	// Stray, if not zero, is the one claim to reclaim, whatever its deadline.
	Stray ClaimToken
}

// ClaimedMessage is one message of a claim.
type ClaimedMessage struct {
	Message
	// Member is the message's identity in Redis, see [Member].
	Member string
	// Score is its place among the waiting messages, to which a reclaim puts it
	// back. It differs from DueAt if the message was parked or retried.
	Score int64
	// Attempts counts the earlier attempts.
	Attempts Attempts
	// Err is set if the stored message is missing or cannot be decoded; then
	// only Member, ID, Key, Queue and DueAt are filled.
	Err error
}

// Attempts counts what has happened to a message that is not yet published.
type Attempts struct {
	// Failures counts refusals by the broker; they use up the attempts.
	Failures int
	// Begun counts how often publishing may have begun: Failures, unknown
	// outcomes and reclaims. Attempt is Begun + 1.
	Begun int
	// MaybeOut counts copies that may be at the broker without our knowing: the
	// mark "maybe published" if it is not 0.
	MaybeOut int
	// Unknowns counts unknown outcomes in a row while others succeeded.
	Unknowns int
}

// Verb ends the claim of one message.
type Verb int

// The verbs that settle a message. The zero value is VerbRelease, which loses nothing.
const (
	// VerbRelease puts it back at its due time, out of a slot too.
	VerbRelease Verb = iota
	// VerbAck removes it: the broker has acknowledged it.
	VerbAck
	// VerbRetry puts it back, due after Delay from now.
	VerbRetry
	// VerbDeadLetter moves it to the dead letters, with Reason.
	VerbDeadLetter
	// VerbPark puts it into Slot, at its due time.
	VerbPark
	// VerbKeep leaves it in the claim, which stays alive with the messages kept.
	VerbKeep
	// VerbDrop removes it, unpublished: it is too late.
	VerbDrop
)

// Verdict says how to settle one message of a claim.
type Verdict struct {
	Verb Verb
	// Delay is how long a retry waits.
	Delay time.Duration
	// Slot is where a parked message goes: 1 to [MaxSlot].
	Slot int
	// Attempts is stored for VerbRetry, VerbRelease, VerbPark and VerbDeadLetter.
	Attempts Attempts
	// Published is set if the message was or may have been handed to the
	// broker: a settle that comes too late then marks it "maybe published".
	Published bool
	// Reason says, for operators, why it goes to the dead letters, or is dropped.
	Reason string
	// Place, for VerbAck, is where the broker has stored it, for operators; empty
	// if that is not known, or if the queue keeps no history.
	Place string
}

// Settlement ends a claim or a part of it: one verdict per message, by index. The
// Claim's Messages are those that are still in it, in the order of the claim.
type Settlement struct {
	Claim    Claim
	Verdicts []Verdict
	// Parks names the routes of slots that verdicts of VerbPark use for the first time.
	Parks []ParkedRoute
	// Repeated is set if an earlier call's answer was lost, so that call may
	// have ended the claim already.
	Repeated bool
}
