package recurring

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/pause"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Errors of recurring schedules.
var (
	// ErrNone is returned if there is no schedule of that name.
	ErrNone = errors.New("delay: no such recurring schedule")
	// ErrMany is returned if the queue has as many as it may have.
	ErrMany = fmt.Errorf("delay: the queue has %d recurring schedules, which is the limit", Most)
	// ErrUnreadable is returned for a record that a later version has written, or nobody can read.
	ErrUnreadable = errors.New("delay: the record of the recurring schedule cannot be read")
	// errMeanwhile ends a step whose record was changed by somebody else.
	errMeanwhile = errors.New("the recurring schedule was changed meanwhile")
)

// Schedules are the recurring schedules of a queue.
type Schedules struct {
	queue   *store.Queue
	durable store.Durability
}

// New returns the recurring schedules of a queue. Changes and firings are as durable as asked.
func New(queue *store.Queue, durable store.Durability) *Schedules { return &Schedules{queue, durable} }

// Kept is a record with the text that Redis has of it, which the next change must name.
type Kept struct {
	Record
	// Err is ErrUnreadable; then there is only a Name.
	Err error

	text string
}

// markField is the field of the mark.
const markField = ""

// Set creates a schedule, or replaces the one of that name: then firings of the old one that are not due yet are cancelled
// before it returns. Firings that are due, or in flight, may still come. It leaves an equal one as it is, and a
// paused one paused, so that it may be called at each start of a program. Its errors are a [*message.InvalidError], [ErrMany],
// [ErrUnreadable] and those of the store, among them [store.ErrOtherTopic]. After [store.ErrNotDurable] it is in force, and is returned. After any other of the
// store's, it may be in force, also some time later, but not once another change of that name has been answered, also if that changed nothing.
func (s *Schedules) Set(ctx context.Context, name string, spec Spec) (set Record, isNew bool, err error) {
	layout, err := s.queue.AwaitLayout(ctx)
	if err != nil {
		return Record{}, false, err
	}
	if err := layout.Rules.Topics.Check(spec.Topic); err != nil {
		return Record{}, false, err
	}
	if !store.MayTouch(ctx, spec.Topic) {
		return Record{}, false, store.ErrOtherTopic
	}
	now := s.queue.Now()
	if err := spec.check(name, layout.Sink, now); err != nil {
		return Record{}, false, err
	}
	set, err = s.change(ctx, name, func(was *Record, now time.Time) (*Record, error) {
		isNew = was == nil
		r := &Record{Spec: spec, Name: name, SetAt: now.UTC().Truncate(time.Millisecond)}
		if was == nil {
			r.newRevision(now)
			return r, nil
		}
		if spec.equals(&was.Spec) {
			return was, nil
		}
		ended := *was
		err := ended.end(now)
		r.Stale, r.Revision, r.Planned, r.Spent, r.Paused, r.By = ended.Stale, ended.Revision, ended.Planned, was.Spent, was.Paused, was.By
		return r, err
	})
	return set, isNew, err
}

// Pause ends the firings until Resume; for those that wait see [Schedules.Set]. A schedule that is paused stays as it is.
func (s *Schedules) Pause(ctx context.Context, name, by string) (Record, error) {
	return s.change(ctx, name, func(was *Record, now time.Time) (*Record, error) {
		if was == nil || !was.Paused.IsZero() {
			return was, noneIf(was == nil)
		}
		r := *was
		err := r.end(now)
		r.Paused, r.By = now.UTC().Truncate(time.Millisecond), pause.By(by)
		return &r, err
	})
}

// Resume lets a schedule fire again, from now on: what it would have fired during the pause is not missed.
func (s *Schedules) Resume(ctx context.Context, name string) (Record, error) {
	return s.change(ctx, name, func(was *Record, now time.Time) (*Record, error) {
		if was == nil || was.Paused.IsZero() {
			return was, noneIf(was == nil)
		}
		r := *was
		r.newRevision(now)
		r.Paused, r.By = time.Time{}, ""
		return &r, nil
	})
}

// Delete removes a schedule; for its firings see [Schedules.Set]. It returns what was there.
func (s *Schedules) Delete(ctx context.Context, name string) (Record, error) {
	return s.change(ctx, name, func(was *Record, now time.Time) (*Record, error) {
		if was == nil {
			return nil, ErrNone
		}
		r := *was
		err := r.end(now)
		r.IsDeleted = true
		return &r, err
	})
}

func noneIf(isNone bool) error {
	if isNone {
		return ErrNone
	}
	return nil
}

// Get returns a schedule, or [ErrNone].
func (s *Schedules) Get(ctx context.Context, name string) (Record, error) {
	kept, _, err := s.read(ctx, name)
	switch {
	case err != nil:
		return Record{}, err
	case kept.text == "" || kept.IsDeleted:
		return Record{}, ErrNone
	}
	return kept.Record, kept.Err
}

// List returns all schedules by name, also those that are being deleted, and the mark of the last change.
func (s *Schedules) List(ctx context.Context) (all []Kept, mark string, err error) {
	fields, err := store.Repeat(ctx, s.queue, func(*store.Layout) (map[string]string, error) {
		return s.queue.Redis(ctx).HGetAll(ctx, s.queue.Keys().Recurring()).Result()
	})
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != markField {
			all = append(all, parse(name, fields[name]))
		}
	}
	return all, fields[markField], err
}

// Mark returns the mark of the last change; empty if there was none. It is one command, and is not repeated.
func (s *Schedules) Mark(ctx context.Context) (string, error) {
	mark, err := s.queue.Redis(ctx).HGet(ctx, s.queue.Keys().Recurring(), markField).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return mark, err
}

func parse(name, text string) Kept {
	kept := Kept{text: text}
	if err := json.Unmarshal([]byte(text), &kept.Record); err != nil {
		kept = Kept{Record: Record{Name: name}, text: text, Err: fmt.Errorf("%w: %w", ErrUnreadable, err)}
	}
	return kept
}

// read returns the record, without a text if there is none, and the mark.
func (s *Schedules) read(ctx context.Context, name string) (kept Kept, mark string, err error) {
	values, err := store.Repeat(ctx, s.queue, func(*store.Layout) ([]any, error) {
		return s.queue.Redis(ctx).HMGet(ctx, s.queue.Keys().Recurring(), name, markField).Result()
	})
	if err != nil || len(values) != 2 {
		return Kept{}, "", err
	}
	text, isThere := values[0].(string)
	mark, _ = values[1].(string)
	if isThere {
		kept = parse(name, text)
	}
	return kept, mark, nil
}

// change puts what edit makes of a record in its place, and then ends what has become stale. edit gets nil if there
// is none, and returns the same record to leave it. It runs again where another change came first.
//
// A call that leaves the record, or finds none, writes, too, so that a run of an earlier call which comes late finds another record,
// or another mark, and changes nothing.
func (s *Schedules) change(ctx context.Context, name string, edit func(was *Record, now time.Time) (*Record, error)) (Record, error) {
	if err := CheckName(name); err != nil {
		return Record{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, store.MaxCall)
	defer cancel()
	var missing error // what is done, and not durable
	for {
		kept, mark, err := s.read(ctx, name)
		if err != nil {
			return Record{}, err
		}
		if kept.Err != nil {
			return Record{}, kept.Err
		}
		if kept.text != "" && !store.MayTouch(ctx, kept.Topic) {
			return Record{}, store.ErrOtherTopic
		}
		if kept.Stale != nil || kept.IsDeleted { // First what another change has begun.
			if _, err = s.finish(ctx, kept); errors.Is(err, store.ErrNotDurable) {
				missing = err
			} else if err != nil && !errors.Is(err, errMeanwhile) {
				return Record{}, err
			}
			continue
		}
		var was *Record
		if kept.text != "" {
			was = &kept.Record
		}
		now, err := s.queue.Clock(ctx)
		if err != nil {
			return Record{}, store.Unavailable(err)
		}
		next, err := edit(was, now)
		switch {
		case errors.Is(err, ErrNone):
			if _, err := s.put(ctx, Kept{Record: Record{Name: name}}, mark, nil, false, store.Durability{}); errors.Is(err, errMeanwhile) {
				continue
			} else if err != nil {
				return Record{}, err
			}
			return Record{}, ErrNone
		case err != nil:
			return Record{}, err
		}
		changed := *next
		changed.Call = rand.Text()
		kept, err = s.put(ctx, kept, mark, &changed, next != was, s.durable)
		switch isMine := kept.Call == changed.Call; {
		case errors.Is(err, errMeanwhile) && !isMine:
			continue
		case errors.Is(err, store.ErrNotDurable):
			missing = err
		case errors.Is(err, errMeanwhile): // It was done, and the answer was lost.
		case err != nil:
			return Record{}, err
		}
		if _, err = s.finish(ctx, kept); err == nil || errors.Is(err, errMeanwhile) {
			err = missing // Somebody else has gone on, and that only after it was finished.
		}
		return kept.Record, err
	}
}

// put puts a record in the place of another, or removes it if next is nil. Where another change came first, the error is
// errMeanwhile, and it returns what is there. An answer that is lost is asked for again. With [store.ErrNotDurable] alone it is done.
func (s *Schedules) put(ctx context.Context, was Kept, mark string, next *Record, isTold bool, d store.Durability) (Kept, error) {
	name, text := was.Name, []byte{}
	if next != nil {
		var err error
		name = next.Name
		if text, err = json.Marshal(next); err != nil {
			return Kept{}, err
		}
	}
	channel := ""
	if isTold {
		channel = s.queue.Keys().Instances()
	}
	args := []any{name, was.text, mark, text, rand.Text(), Most, channel}
	var missing error
	reply, err := store.Repeat(ctx, s.queue, func(*store.Layout) (*scripts.Reply, error) {
		cmd, err := s.run(ctx, d, args)
		if missing = nil; errors.Is(err, store.ErrNotDurable) {
			missing, err = err, nil
		}
		if err != nil {
			return nil, err
		}
		r := scripts.NewReply(cmd)
		r.Int(0)
		return r, r.Err
	})
	if err != nil {
		return Kept{}, err
	}
	found := Kept{text: reply.Text(2)}
	switch code := reply.Int(0); {
	case code < 0:
		return Kept{}, ErrMany
	case code == 1 && next != nil:
		found.Record = *next
	case code == 0:
		if err = errMeanwhile; found.text == string(text) {
			err = nil // The first run has done it.
		}
		if found.text != "" {
			found = parse(name, found.text)
		}
	}
	return found, errors.Join(reply.Err, err, missing)
}

func (s *Schedules) run(ctx context.Context, d store.Durability, args []any) (*redis.Cmd, error) {
	key := s.queue.Keys().Recurring()
	if d.IsSet() {
		return s.queue.RunDurably(ctx, d, scripts.Recurring, key, args...)
	}
	return s.queue.Run(ctx, scripts.Recurring, []string{key}, args...)
}

// finish ends the stale firings of a record, and removes one that is deleted. The error is errMeanwhile if
// somebody else has done so, and [store.ErrNotDurable] if it is done, and a failover may take it back.
func (s *Schedules) finish(ctx context.Context, kept Kept) (Kept, error) {
	if kept.Stale == nil && !kept.IsDeleted {
		return kept, nil
	}
	var missing error
	var spent []int64
	if kept.Stale != nil {
		spent, missing = s.endFirings(ctx, kept.Name, kept.Stale)
		if missing != nil && !errors.Is(missing, store.ErrNotDurable) {
			return kept, missing
		}
	}
	ended := kept.Record
	ended.Stale, ended.Spent = nil, ended.spend(spent, s.queue.Now())
	next := &ended
	if kept.IsDeleted {
		next = nil
	}
	kept, err := s.put(ctx, kept, "", next, next != nil, store.Durability{})
	if err == nil {
		err = missing
	}
	return kept, err
}

// endFirings makes sure that none of these firings comes any more, and returns those for which it was too late: they are in flight, or were
// published, or somebody else has cancelled them. It cancels each by the token of the call
// that schedules it, which no firing of another revision has; where a planner has not made that call yet, it has no effect later. Whoever
// ends a firing is told the same. After [store.ErrNotDurable] it is done.
func (s *Schedules) endFirings(ctx context.Context, name string, stale *Stale) (spent []int64, missing error) {
	ctx = store.WithTopics(ctx, nil) // Whoever may change the schedule may also do this.
	list := make([]store.BulkItem, len(stale.Firings))
	for i, at := range stale.Firings {
		id := FiringID(name, at)
		life, err := store.TokenOf(s.call(id, stale.Key, stale.Revision, at))
		if err != nil {
			return nil, err
		}
		token, err := store.TokenOf(s.queue.Producer().Traced("cancel", id, stale.Key, "cancel"+callName(stale.Revision, at), remembered, false))
		if err != nil {
			return nil, err
		}
		list[i] = store.BulkItem{Member: message.Member(id, stale.Key), Token: token, Life: life}
	}
	for i, a := range s.queue.ChangeMany(ctx, store.BulkChange{Never: true, Durable: s.durable, Remembered: remembered}, list) {
		if a.Err != nil {
			return nil, a.Err
		}
		if a.Code == store.InFlight || a.Code == store.EndedPublished {
			spent = append(spent, stale.Firings[i])
		}
		if a.Missing != nil { // Also where there was no message: a tombstone must stay then.
			missing = fmt.Errorf("%w: %w", store.ErrNotDurable, a.Missing)
		}
	}
	return spent, missing
}

// call returns the one call that schedules a firing of a revision.
func (s *Schedules) call(id, key, revision string, at int64) error {
	return s.queue.Producer().Traced("schedule", id, key, callName(revision, at), remembered, false)
}

func named(err error) *store.UnknownCall {
	var unknown *store.UnknownError
	errors.As(err, &unknown)
	return &unknown.Call
}
