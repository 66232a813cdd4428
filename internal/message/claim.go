package message

import (
	"strconv"
	"time"
)

// ClaimToken names one claim of one shard: the instance that made it and a
// number that the instance raises by one for each new claim of that shard. The
// same token asks for the same batch again, which is what makes a claim whose
// answer was lost harmless.
type ClaimToken struct {
	Instance string
	Number   uint64
}

// String is the token as Redis stores it.
func (t ClaimToken) String() string {
	return t.Instance + "|" + strconv.FormatUint(t.Number, 10)
}

// ClaimRequest asks for due messages of one shard, and renews the holder's
// lease, of nothing, too.
type ClaimRequest struct {
	Token ClaimToken
	// Max is how many messages to take: 0 (renew only) to 1,000.
	Max int
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
	Messages []Claimed
	// More is set where the batch ended at a limit: more may be due already.
	More bool
	// Expired is set where claims of the shard have passed their deadlines and
	// should be reclaimed.
	Expired bool
	// Now is Redis' clock when the claim ran, in whole milliseconds.
	Now time.Time
	// NextDue is the due time of the first message still waiting; zero if none waits.
	NextDue time.Time
	// Epoch is the shard's, where the claim was granted: another one than the
	// layout's tells that the layout has changed.
	Epoch string
	// HeldFor is how long another instance's lease still lasts.
	HeldFor time.Duration
}

// Claimed is one message of a claim.
type Claimed struct {
	Message
	// Member is the message's identity in Redis, see [Member].
	Member string
	// Attempts is what earlier attempts left behind.
	Attempts Attempts
	// Err is set where the stored message is missing or cannot be decoded; then
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
	// mark "maybe published" where it is not 0.
	MaybeOut int
	// Unknowns counts unknown outcomes in a row while others succeeded.
	Unknowns int
}

// Verb ends the claim of one message.
type Verb int

// The verbs that settle a message. The zero value is VerbRelease, which loses nothing.
const (
	// VerbRelease puts it back at its due time.
	VerbRelease Verb = iota
	// VerbAck removes it: the broker has acknowledged it.
	VerbAck
	// VerbRetry puts it back, due after Delay from now.
	VerbRetry
	// VerbDeadLetter moves it to the dead letters, with Reason.
	VerbDeadLetter
)

// Verdict says how to settle one message of a claim.
type Verdict struct {
	Verb Verb
	// Delay is how long a retry waits.
	Delay time.Duration
	// Attempts is stored for VerbRetry, VerbRelease and VerbDeadLetter.
	Attempts Attempts
	// Published is set where the message was or may have been handed to the
	// broker: a settle that comes too late then marks it "maybe published".
	Published bool
	// Reason is the dead letter's, for people: class, cause.
	Reason string
}

// Settlement ends a whole claim: one verdict a message, by index.
type Settlement struct {
	Claim    Claim
	Verdicts []Verdict
	// Repeated is set where an earlier call's answer was lost, so that the
	// claim may have ended already by our own doing.
	Repeated bool
}
