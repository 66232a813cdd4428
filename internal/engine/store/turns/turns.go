// Package turns keeps which messages of a consumer's key are outstanding, in their order: each has failed, or was held back behind
// one that has, and will be delivered again. Package delay/retry decides by it whose turn it is.
//
// # The record
//
// A topic and key have one record, which expires. A change names the record that it was read from, and has a
// mark that no other has; so one that comes late, from a consumer that has died, changes nothing. When the last message has
// left, the record stays for a minute without any, for the same reason: a change that has read no record names none, so it
// is one only within that minute.
package turns

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Most limits the messages in a record.
const Most = 1000

// emptyKept is how long a record without messages stays, and how long after the look a first record may be put.
const emptyKept = time.Minute

// unread stands for the record that a change names, of who only reads.
const unread = "-"

// ErrMeanwhile is returned if somebody else has changed the record since it was read.
var ErrMeanwhile = errors.New("the key's turns were changed meanwhile")

// Waiting is an outstanding message: the delivery of it that is to come.
type Waiting struct {
	Origin string `json:"o"`
	// Stay names its time in the record, and Number counts the deliveries that were handed over in it.
	Stay   string `json:"s"`
	Number int    `json:"n"`
	DueMs  int64  `json:"d"` // when that delivery is due
}

// Record is what Redis has.
type Record struct {
	Waiting []Waiting // in the order of their first deliveries
	At      time.Time // when it was read, by Redis' clock

	text string
}

// stored is the record's form in Redis.
type stored struct {
	Mark    string    `json:"mark"`
	Waiting []Waiting `json:"waiting,omitempty"`
}

// Turns are the turns of the keys of a topic that a queue's messages come from.
type Turns struct {
	queue   *store.Queue
	durable store.Durability
}

// New returns the turns that are kept beside a queue. What is put is as durable as asked.
func New(queue *store.Queue, durable store.Durability) *Turns { return &Turns{queue, durable} }

// IsDurable tells whether a change must be durable; a record that was read need not be then, if who has made it has died.
func (t *Turns) IsDurable() bool { return t.durable.IsSet() }

// Get returns the record of a topic's key. The errors are those of [store.Queue.Repeat].
func (t *Turns) Get(ctx context.Context, topic, key string) (Record, error) {
	r, _, err := t.run(ctx, topic, key, Record{text: unread}, nil, 0)
	return r, err
}

// Put puts a record in the place of the one that was read, for that long after now. If the error is [ErrMeanwhile], it
// returns the one that is there; if that is none, there was none, either, but it was read more than a minute ago.
func (t *Turns) Put(ctx context.Context, topic, key string, was Record, waiting []Waiting, kept time.Duration) (Record, error) {
	text, err := json.Marshal(stored{rand.Text(), waiting})
	if err != nil {
		return Record{}, err
	}
	r, done, err := t.run(ctx, topic, key, was, text, max(kept, emptyKept))
	if err == nil && !done {
		err = ErrMeanwhile
	}
	return r, err
}

func (t *Turns) run(ctx context.Context, topic, key string, was Record, text []byte, kept time.Duration) (r Record, done bool, err error) {
	name := t.queue.Keys().Turns(store.Digest(topic, key))
	span := fmt.Sprint(was.At.UnixMilli(), " ", was.At.Add(emptyKept).UnixMilli()-1)
	reply, err := store.Repeat(ctx, t.queue, func(*store.Layout) (*scripts.Reply, error) {
		cmd, err := t.send(ctx, name, was.text, text, kept.Milliseconds(), span)
		if err != nil {
			return nil, fmt.Errorf("turns: %w", err)
		}
		reply := scripts.NewReply(cmd)
		reply.Int(0)
		return reply, reply.Err
	})
	if err != nil {
		return Record{}, false, err
	}
	r.text, r.At, done = reply.Text(1), time.UnixMilli(reply.Int(2)), reply.Int(0) == 1
	if r.text == "" || reply.Err != nil {
		return r, done, reply.Err
	}
	var s stored
	if err := json.Unmarshal([]byte(r.text), &s); err != nil {
		return Record{}, false, fmt.Errorf("turns: record %q: %w", name, err)
	}
	r.Waiting = s.Waiting
	return r, done, nil
}

func (t *Turns) send(ctx context.Context, name, was string, args ...any) (*redis.Cmd, error) {
	args = append([]any{was}, args...)
	if t.IsDurable() && was != unread {
		return t.queue.RunDurably(ctx, t.durable, scripts.Turns, name, args...)
	}
	return t.queue.Run(ctx, scripts.Turns, []string{name}, args...)
}
