package importer

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// Item is what waits in the other system: a task, a job, a delayed message.
type Item struct {
	// Set is which of the origin's sets it waits in.
	Set, ID string
	// Kind is what the other system calls its type or name.
	Kind    string
	Due     time.Time
	Headers map[string]string
	Body    []byte
	// Needs is what it has that messages have not.
	Needs []Reason
	// Err is why it cannot be read.
	Err error

	score, digest string
	// entry is what the journal says of it; nil before it is held.
	entry *entry
	// isGone is set if the journal has it, and the other system has not.
	isGone bool
}

// entry is what the journal notes of an item. The next run finishes it by this alone, whatever its flags are.
type entry struct {
	Set   string `json:"set"`
	Score string `json:"score"`
	Nonce string `json:"nonce"`
	Queue string `json:"queue"`
	ID    string `json:"id"`
	Key   string `json:"key"`
	Topic string `json:"topic"`
}

// Reason is why an item stays where it is.
type Reason string

// The reasons. Those of [GivenUp] can be done without.
const (
	NeedsUnique        Reason = "unique"        // asynq's lock of a Unique
	NeedsRetention     Reason = "retention"     // asynq keeps it once it is done
	NeedsGroup         Reason = "group"         // asynq joins it with others
	NeedsDeduplication Reason = "deduplication" // BullMQ refuses others of its deduplication id
	NeedsFlow          Reason = "flow"          // BullMQ has a parent or children of it
	NeedsRecurring     Reason = "recurring"     // BullMQ makes the next one when it runs
	NeedsRetries       Reason = "retry"         // it has been tried, and is to be tried again
	NoTopic            Reason = "no topic"
	NoKey              Reason = "no key"
	Unreadable         Reason = "unreadable"
	NotFit             Reason = "does not fit" // against a limit of the queue
	Taken              Reason = "id taken"     // by a message that this import has not made
	Changing           Reason = "changing"     // it changed each time between being read and being held
)

// GivenUp are what an item may lose, if the user says so.
var GivenUp = []Reason{NeedsUnique, NeedsRetention, NeedsDeduplication, NeedsRetries}

// Rules say what messages are made of items.
type Rules struct {
	// Topics are by kind; Topic is that of all other kinds, and empty leaves them.
	Topics map[string]string
	Topic  string
	// Prefix is put before each id.
	Prefix string
	// Key finds a message's key in the item's id, as the first group; nil leaves messages without a key.
	Key *regexp.Regexp
	// GiveUp are needs that items may lose.
	GiveUp []Reason

	// Sink, MaxMessage and Accepted are the queue's limits.
	Sink       message.SinkType
	MaxMessage int
	Accepted   message.Topics
}

// refusal is why an item stays, with the detail where there is one.
type refusal struct {
	reason Reason
	detail string
}

// plan decides what message is made of an item, or why none is.
func (r *Rules) plan(it *Item, now time.Time) (*entry, *refusal) {
	if it.Err != nil {
		return nil, &refusal{Unreadable, it.Err.Error()}
	}
	for _, need := range it.Needs {
		if !slices.Contains(r.GiveUp, need) {
			return nil, &refusal{reason: need}
		}
	}
	e := &entry{Set: it.Set, Score: it.score, ID: r.Prefix + it.ID, Topic: cmp.Or(r.Topics[it.Kind], r.Topic)}
	if e.Topic == "" {
		return nil, &refusal{NoTopic, fmt.Sprintf("%s has none: --topic-map '%s=TOPIC'", it.Kind, it.Kind)}
	}
	if r.Key != nil {
		found := r.Key.FindStringSubmatch(it.ID)
		if len(found) < 2 {
			return nil, &refusal{NoKey, fmt.Sprintf("the pattern does not match id %q", it.ID)}
		}
		e.Key = found[1]
	}
	if err := r.check(it, e, now); err != nil {
		return nil, &refusal{NotFit, err.Error()}
	}
	return e, nil
}

// check holds the message against the limits of the queue.
func (r *Rules) check(it *Item, e *entry, now time.Time) error {
	m := message.Message{ID: e.ID, Key: e.Key, Topic: e.Topic, Headers: it.Headers, Body: it.Body}
	if err := m.Validate(r.Sink, r.MaxMessage); err != nil {
		return err
	}
	if err := r.Accepted.Check(e.Topic); err != nil {
		return err
	}
	if it.Due.After(now.AddDate(message.MaxDelayYears, 0, 0)) || it.Due.Before(time.UnixMilli(0)) {
		limit := fmt.Sprintf("from 1970 to %d years from now", message.MaxDelayYears)
		return &message.InvalidError{Field: "due", Value: it.Due.UTC().Format(time.RFC3339), Limit: limit}
	}
	return nil
}

// schedule is the message of an item that is held.
func (it *Item) schedule(call error) operate.Schedule {
	return operate.Schedule{
		ID: it.entry.ID, Key: it.entry.Key, Topic: it.entry.Topic, Headers: it.Headers, Body: string(it.Body),
		When: operate.When{At: operate.Stamp(it.Due)}, Conflict: "keep", Call: call,
	}
}

// setHeader adds a header of ours, unless the item has one of that name.
func (it *Item) setHeader(name, value string) {
	if it.Headers == nil {
		it.Headers = map[string]string{}
	}
	if _, has := it.Headers[name]; !has {
		it.Headers[name] = value
	}
}

func (it *Item) setCount(name string, n int64) { it.setHeader(name, strconv.FormatInt(n, 10)) }
