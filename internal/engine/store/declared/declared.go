// Package declared keeps the queues that teams have declared by the API: all those of a prefix in one key, which the bridges read
// every few seconds.
//
// # Revisions
//
// All declarations together have a revision: when the first of them was made since Redis had none, when the last change was
// made, and a mark that no other revision has. A change names the revision that it was made from. So a reader compares one small
// text, a run that comes late changes nothing, and a bridge that knows a later revision than Redis can tell that Redis has lost
// it, see [Merge].
package declared

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// MaxBytes limits all declarations together, as they are stored.
const MaxBytes = 1 << 20

var (
	// ErrMeanwhile is returned if somebody else has changed the declarations since they were read.
	ErrMeanwhile = errors.New("the declarations were changed meanwhile")
	// ErrTooLarge is returned for more declarations than [MaxBytes].
	ErrTooLarge = fmt.Errorf("the declarations of all queues would have more than %d bytes", MaxBytes)
)

// Declaration is a queue as a team has declared it.
type Declaration struct {
	// Queue has the keys of the queue in the configuration, as JSON.
	Queue json.RawMessage `json:"queue"`
	// Revision is another one after each change. No other declaration has it.
	Revision int64 `json:"revision"`
	// By is who made the last change, and AtMs when, by Redis' clock.
	By   string `json:"by"`
	AtMs int64  `json:"at_ms"`
}

// Set is what was declared at one time. Nobody changes it. The zero value is that of a Redis where nothing was ever declared.
type Set struct {
	revision revision
	Queues   map[string]Declaration
}

// revision is 0 where there is none.
type revision struct {
	// madeMs is when the first declaration was made since there was none, and number when the last change was; by Redis' clock, in ms,
	// but always higher than the one before.
	madeMs, number int64
	mark           string
}

func (r revision) String() string {
	if r.number == 0 {
		return ""
	}
	return fmt.Sprintf("%d %d %s", r.madeMs, r.number, r.mark)
}

func parseRevision(text string) (r revision, err error) {
	if text == "" {
		return r, nil
	}
	if n, err := fmt.Sscanf(text, "%d %d %s", &r.madeMs, &r.number, &r.mark); err != nil || n != 3 || r.number < 1 {
		return r, fmt.Errorf("revision %.100q of the declarations is not one", text)
	}
	return r, nil
}

// Is reports whether both are the same revision.
func (s Set) Is(other Set) bool { return s.revision == other.revision }

// IsNone reports whether nothing was declared since Redis had nothing.
func (s Set) IsNone() bool { return s.revision.number == 0 }

// With is the set with another declaration of that name.
func (s Set) With(name string, queue json.RawMessage, by string, now time.Time) Set {
	next := s.changed(now)
	next.Queues[name] = Declaration{Queue: queue, Revision: next.revision.number, By: by, AtMs: now.UnixMilli()}
	return next
}

// Without is the set without the declaration of that name.
func (s Set) Without(name string, now time.Time) Set {
	next := s.changed(now)
	delete(next.Queues, name)
	return next
}

// changed is a copy under the next revision.
func (s Set) changed(now time.Time) Set {
	next := Set{revision{s.revision.madeMs, max(s.revision.number+1, now.UnixMilli()), rand.Text()}, maps.Clone(s.Queues)}
	if s.IsNone() {
		next.revision.madeMs = next.revision.number
	}
	if next.Queues == nil {
		next.Queues = map[string]Declaration{}
	}
	return next
}

// Merge decides what is to be declared if a bridge knows one set and Redis has another one. isLost says that Redis has lost something, so
// that the result is to be put there:
//
//	Redis has                                          the result
//	a later change, or the same                        what Redis has
//	nothing, or an earlier change                      what is known
//	what was declared since it had nothing, or before  both; for a name in both, that of who began later
//
// Nothing is removed by a loss: only a later change of the same beginning removes a queue.
func Merge(known, stored Set, now time.Time) (result Set, isLost bool) {
	switch began := known.revision.madeMs; {
	case known.IsNone(), began == stored.revision.madeMs && stored.revision.number >= known.revision.number:
		return stored, false
	case stored.IsNone(), began == stored.revision.madeMs:
		return known, true
	}
	older, newer := known, stored
	if known.revision.madeMs > stored.revision.madeMs {
		older, newer = stored, known
	}
	result = newer.changed(now)
	for name, d := range older.Queues {
		if _, isThere := result.Queues[name]; !isThere {
			result.Queues[name] = d
		}
	}
	if len(result.Queues) == len(newer.Queues) && newer.Is(stored) {
		return stored, false
	}
	result.revision.number = max(result.revision.number, older.revision.number+1)
	return result, true
}

// Store is where the declarations of a prefix are. It is safe for concurrent use and owns nothing.
type Store struct {
	conn *conn.Conn
	key  string
}

// New returns the declarations of a prefix; it does no I/O. A run of its script takes at most that long.
func New(rdb redis.UniversalClient, prefix string, timeout time.Duration) *Store {
	return &Store{conn.New(rdb, timeout), keys.Queue{Prefix: prefix}.Declared()}
}

// Has reports whether Redis has this revision, by one small read. The error is [store.ErrUnavailable].
func (s *Store) Has(ctx context.Context, set Set) (bool, error) {
	text, err := s.conn.Client(ctx).HGet(ctx, s.key, "revision").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, store.Unavailable(err)
	}
	return text == set.revision.String(), nil
}

// Look is [Store.Read] without the script, and so without the right to change anything.
func (s *Store) Look(ctx context.Context) (Set, error) {
	values, err := s.conn.Client(ctx).HMGet(ctx, s.key, "revision", "declared").Result()
	if err != nil {
		return Set{}, store.Unavailable(err)
	}
	revision, _ := values[0].(string)
	text, _ := values[1].(string)
	return parse(revision, text)
}

const (
	// onlyRead stands for the revision that a change names, of who only reads.
	onlyRead = "-"
	// Pauses between runs.
	firstPause, longPause = 20 * time.Millisecond, 500 * time.Millisecond
)

// Read returns what is declared, and the time by Redis' clock. The error is [store.ErrUnavailable] if Redis has not answered within ctx.
func (s *Store) Read(ctx context.Context) (Set, time.Time, error) {
	set, now, _, err := s.run(ctx, onlyRead, Set{}, nil)
	return set, now, err
}

// Replace puts a set in the place of the one that was read. The errors are [ErrMeanwhile], [ErrTooLarge], [store.ErrUnavailable] and
// [store.ErrFull], with which nothing has changed, and [store.ErrUnknown]: then the same call, made again, has no second effect.
func (s *Store) Replace(ctx context.Context, was, next Set) error {
	text, err := json.Marshal(next.Queues)
	if err != nil {
		return err
	}
	if len(text) > MaxBytes {
		return ErrTooLarge
	}
	_, _, isDone, err := s.run(ctx, was.revision.String(), next, text)
	if err == nil && !isDone {
		err = ErrMeanwhile
	}
	return err
}

// run repeats the script until it is answered or ctx ends.
func (s *Store) run(ctx context.Context, was string, next Set, text []byte) (set Set, now time.Time, isDone bool, err error) {
	pause := wait.Backoff{Initial: firstPause, Limit: longPause}
	isMaybeDone := false
	for {
		cmd, err := s.conn.Run(ctx, scripts.Declare, []string{s.key}, was, next.revision.String(), text)
		if err == nil {
			return read(cmd, next)
		}
		err = fmt.Errorf("declare: %w", err)
		class := rediserr.Classify(err)
		isMaybeDone = isMaybeDone || class == rediserr.Lost && was != onlyRead
		isOver := class == rediserr.Fatal || class == rediserr.Full || !wait.Sleep(ctx, pause.Next())
		switch {
		case isOver && isMaybeDone:
			return set, now, false, fmt.Errorf("%w: %w", store.ErrUnknown, err)
		case isOver && class == rediserr.Full:
			return set, now, false, fmt.Errorf("%w: %w", store.ErrFull, err)
		case isOver:
			return set, now, false, store.Unavailable(err)
		}
	}
}

// read reads the answer of the script that was to put next.
func read(cmd *redis.Cmd, next Set) (set Set, now time.Time, isDone bool, err error) {
	reply := scripts.NewReply(cmd)
	isDone, now = reply.Int(0) == 1, time.UnixMilli(reply.Int(3))
	revision, text := reply.Text(1), reply.Text(2)
	switch {
	case reply.Err != nil:
		return set, now, false, reply.Err
	case isDone:
		return next, now, true, nil
	}
	set, err = parse(revision, text)
	return set, now, false, err
}

// parse reads what Redis has.
func parse(revision, text string) (set Set, err error) {
	if set.revision, err = parseRevision(revision); err != nil || text == "" {
		return set, err
	}
	if err := json.Unmarshal([]byte(text), &set.Queues); err != nil {
		return Set{}, fmt.Errorf("declarations: %w", err)
	}
	return set, nil
}
