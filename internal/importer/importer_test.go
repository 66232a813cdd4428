package importer_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/importer"
)

// far is a due time that is not soon; asynq knows seconds only.
func far() time.Time { return time.Now().Add(24 * time.Hour).Truncate(time.Second) }

// TestMoves: what waits there waits here, with its due time, payload and headers, and nothing is left there.
func TestMoves(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		due, past := far(), time.Now().Add(-time.Hour).Truncate(time.Second)
		all := ids(620) // more than two pages
		for i, id := range all {
			s.add(t, id, due.Add(time.Duration(i)*time.Second), `{"order":42}`)
		}
		s.add(t, "late", past, `{"order":1}`)
		r := s.ok()
		assert.EqualValues(t, len(all)+1, r.Before.Waiting)
		assert.EqualValues(t, len(all)+1, r.Moved)
		assert.Equal(t, r.Moved, r.Found)
		assert.Equal(t, map[string]int64{"order:timeout": r.Moved}, r.ByKind)
		assert.EqualValues(t, 1, r.ByDay["due already"])
		assert.Zero(t, r.After)
		assert.Zero(t, r.Unaccounted())
		assert.Empty(t, r.Left)
		for i, id := range all {
			s.isHere(id, due.Add(time.Duration(i)*time.Second))
		}
		s.isHere("late", past)
		info, err := s.get(all[0])
		require.NoError(t, err)
		assert.JSONEq(t, `{"order":42}`, string(info.Body))
		switch s.other.(type) {
		case *asynqWorld:
			assert.Equal(t, map[string]string{"asynq-type": "order:timeout", "trace": "t-" + all[0]}, info.Headers)
		case *bullWorld:
			assert.Equal(t, map[string]string{"bullmq-name": "order:timeout", "content-type": "application/json"}, info.Headers)
		}
		s.isClean()
		assert.Zero(t, s.ok().Moved)
	})
}

// TestBrokenOff breaks a run off between each two steps. Some items are cancelled there before the next run. After
// that, each item that was not cancelled is here once, and each other one nowhere.
func TestBrokenOff(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"held", "scheduled", "removed", "cancelled"} {
		t.Run(step, func(t *testing.T) {
			inBoth(t, func(t *testing.T, s *scene) { breakOff(t, s, step) })
		})
	}
}

func breakOff(t *testing.T, s *scene, step string) {
	due := far()
	all := ids(6)
	for _, id := range all {
		s.add(t, id, due, `{"order":42}`)
	}
	early := all[5] // It is cancelled in the first run, while it is held.
	cancelled := map[string]bool{early: true}
	_, err := s.run(func(o *importer.Options) {
		o.Step = func(name string) error {
			if name == "scheduled" || name == "held" && step == "held" {
				if s.has(t, early) {
					require.NoError(t, s.cancel(t, early), "while it is held")
				}
			}
			if name == step {
				return errCrash
			}
			return nil
		}
	})
	require.ErrorIs(t, err, errCrash)
	for _, id := range all[:2] {
		switch err := s.cancel(t, id); {
		case err == nil:
			cancelled[id] = true
		case step == "held" || step == "scheduled":
			assert.NoError(t, err, "it is held, and must be cancelled there")
		default:
			assert.ErrorIs(t, err, delay.ErrNotFound)
		}
	}
	r := s.ok()
	assert.Zero(t, r.Late)
	assert.Zero(t, r.After)
	assert.Zero(t, r.Unaccounted(), "%+v", r)
	for _, id := range all {
		if cancelled[id] {
			s.isNowhere(id)
		} else {
			s.isHere(id, due)
		}
	}
	s.isClean()
}

// TestBrokenOffWasPublished: what a broken off run has scheduled is not made again, though it was published meanwhile
// and no message remembers it.
func TestBrokenOffWasPublished(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		s.add(t, "a", far(), `1`)
		_, err := s.run(crashAt("scheduled"))
		require.ErrorIs(t, err, errCrash)
		require.NoError(t, s.queue.Client().Cancel(t.Context(), delay.Ref{ID: "a"}), "its end, as a publish would be")
		r := s.ok(func(o *importer.Options) { o.Rules.Topics, o.Rules.Prefix = nil, "other/" })
		assert.EqualValues(t, 1, r.Moved)
		assert.Equal(t, []string{"a"}, r.Missing, "it is not due, and not here: the count says so")
		s.isNowhere("a")
		s.isNowhere("other/a")
		s.isClean()
	})
}

// TestIDUsedAgain: an id that was moved once is moved again when the other system has it anew.
func TestIDUsedAgain(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		for range 2 {
			due := far()
			s.add(t, "a", due, `1`)
			assert.EqualValues(t, 1, s.ok().Moved)
			s.isHere("a", due)
			require.NoError(t, s.queue.Client().Cancel(t.Context(), delay.Ref{ID: "a"}))
		}
	})
}

// TestOthersMessageStays: the cancel of a moved item ends the message of the import, and not a later one of that id.
func TestOthersMessageStays(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		s.add(t, "a", far(), `1`)
		_, err := s.run(crashAt("scheduled"))
		require.ErrorIs(t, err, errCrash)
		require.NoError(t, s.cancel(t, "a"))
		require.NoError(t, s.queue.Client().Cancel(t.Context(), delay.Ref{ID: "a"}))
		due := far().Add(time.Hour)
		_, err = s.queue.Client().Schedule(t.Context(), delay.Message{ID: "a", Topic: "order.timeout", Body: []byte("anew")}, delay.At(due))
		require.NoError(t, err)
		r := s.ok()
		assert.EqualValues(t, 1, r.Cancelled)
		s.isHere("a", due)
		s.isClean()
	})
}

// TestTaken: a message of somebody else stays as it is, and so does the item.
func TestTaken(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		_, err := s.queue.Client().Schedule(t.Context(), delay.Message{ID: "a", Topic: "other"}, delay.After(time.Hour))
		require.NoError(t, err)
		s.add(t, "a", far(), `1`)
		before := s.state()
		r := s.ok()
		assert.Equal(t, map[importer.Reason]int64{importer.Taken: 1}, counts(r))
		assert.Zero(t, r.Unaccounted())
		after := s.state()
		for key := range before {
			assert.Contains(t, after, key)
		}
		require.NoError(t, s.cancel(t, "a"), "the other system has it again")
		info, err := s.get("a")
		require.NoError(t, err)
		assert.Equal(t, "other", info.Topic)

		due := far()
		s.add(t, "a", due, `1`)
		require.NoError(t, s.queue.Client().Cancel(t.Context(), delay.Ref{ID: "a"}))
		assert.EqualValues(t, 1, s.ok().Moved, "the id is free")
		s.isHere("a", due)
	})
}

// TestSoon: while an item is held whose message may be published any time, a cancel there is refused, as it is for what is being processed.
func TestSoon(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		s.add(t, "soon", time.Now().Add(20*time.Second), `1`)
		s.add(t, "far", far(), `1`)
		looked := 0
		r := s.ok(func(o *importer.Options) {
			o.Step = func(name string) error {
				if name == "held" {
					looked++
					assert.ErrorIs(t, s.cancel(t, "soon"), errBusy)
					assert.NoError(t, s.cancel(t, "far"))
				}
				return nil
			}
		})
		assert.Equal(t, 1, looked)
		assert.EqualValues(t, 1, r.Moved)
		assert.EqualValues(t, 1, r.Cancelled)
		assert.False(t, s.has(t, "soon"))
		s.isNowhere("far")
		s.isClean()
	})
}

// TestLate: after a crash, an item may become due before the next run. Its cancel came too late, which the report says.
func TestLate(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		s.add(t, "a", time.Now().Add(-time.Minute), `1`)
		_, err := s.run(crashAt("scheduled"))
		require.ErrorIs(t, err, errCrash)
		require.NoError(t, s.queue.Client().Cancel(t.Context(), delay.Ref{ID: "a"}), "its end, as a publish would be")
		if w, ok := s.other.(*asynqWorld); ok {
			require.NoError(t, s.rdb.Del(t.Context(), w.prefix()+"t:a").Err())
		} else {
			require.NoError(t, s.rdb.Del(t.Context(), "bull:"+s.name()+":a", "bull:"+s.name()+":a:lock").Err())
		}
		r := s.ok()
		assert.EqualValues(t, 1, r.Late)
		assert.Equal(t, []string{"a"}, r.LateIDs)
	})
}

// TestStays: what does not fit or has no counterpart stays as it was, with its reason.
func TestStays(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		due := far()
		s.add(t, "large", due, large())
		s.add(t, " spaces ", due, `1`)
		s.add(t, "never", time.Now().AddDate(11, 0, 0), `1`)
		want := map[importer.Reason]int64{importer.NotFit: 3}
		var mayLose []importer.Reason
		switch w := s.other.(type) {
		case *asynqWorld:
			s.add(t, "unique", due, `1`, field{number: 10, name: "unique_key", text: w.prefix() + "unique:x"})
			require.NoError(t, s.rdb.Set(t.Context(), w.prefix()+"unique:x", "unique", time.Hour).Err())
			s.add(t, "retained", due, `1`, field{number: 12})
			s.add(t, "group", due, `1`, field{number: 14, name: "group", text: "g"})
			s.add(t, "garbage", due, `1`)
			require.NoError(t, s.rdb.HSet(t.Context(), w.prefix()+"t:garbage", "msg", "\xff\xff").Err())
			want[importer.NeedsUnique], want[importer.NeedsRetention], want[importer.NeedsGroup], want[importer.Unreadable] = 1, 1, 1, 1
			mayLose = []importer.Reason{importer.NeedsUnique, importer.NeedsRetention}
		case *bullWorld:
			s.add(t, "deduplicated", due, `1`, field{name: "deid", text: "x"})
			require.NoError(t, s.rdb.Set(t.Context(), w.prefix()+"de:x", "deduplicated", time.Hour).Err())
			s.add(t, "tried", due, `1`, field{name: "atm", text: "2"})
			s.add(t, "child", due, `1`, field{name: "parentKey", text: "bull:parents:1"})
			s.add(t, "repeat:x:1", due, `1`, field{name: "rjk", text: "x"})
			s.add(t, "parent", due, `1`)
			require.NoError(t, s.rdb.HSet(t.Context(), w.prefix()+"parent:processed", "bull:children:1", "1").Err())
			want[importer.NeedsDeduplication], want[importer.NeedsRetries], want[importer.NeedsFlow], want[importer.NeedsRecurring] = 1, 1, 2, 1
			mayLose = []importer.Reason{importer.NeedsDeduplication, importer.NeedsRetries}
		}
		before := s.state()
		r := s.ok()
		assert.Equal(t, want, counts(r))
		assert.Zero(t, r.Moved)
		assert.Zero(t, r.Unaccounted())
		assert.Equal(t, before, s.state(), "nothing was touched")

		s.rules.GiveUp = mayLose
		assert.EqualValues(t, len(mayLose), s.ok().Moved)
		switch w := s.other.(type) {
		case *asynqWorld:
			s.isHere("unique", due)
			assert.False(t, exists(t, s.rdb, w.prefix()+"unique:x"))
		case *bullWorld:
			s.isHere("deduplicated", due)
			assert.False(t, exists(t, s.rdb, w.prefix()+"de:x"))
			info, err := s.get("tried")
			require.NoError(t, err)
			assert.Equal(t, "2", info.Headers["bullmq-attempts-made"])
		}
	})
}

// TestRules: topic, id and key are made as the rules say, and what they do not name stays.
func TestRules(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		s.add(t, "order-42/timeout", far(), `1`)
		s.add(t, "order-43", far(), `1`)
		s.rules.Key = regexp.MustCompile(`^([^/]+)/`)
		s.rules.Prefix = "old/"
		assert.Equal(t, map[importer.Reason]int64{importer.NoKey: 1}, counts(s.ok()))
		info, err := s.queue.Client().Get(t.Context(), delay.Ref{ID: "old/order-42/timeout", Key: "order-42"})
		require.NoError(t, err)
		assert.Equal(t, "order.timeout", info.Topic)

		s.rules.Key, s.rules.Topics = nil, nil
		r := s.ok()
		require.Equal(t, map[importer.Reason]int64{importer.NoTopic: 1}, counts(r))
		assert.Contains(t, r.Left[importer.NoTopic].Examples[0].Detail, "--topic-map 'order:timeout=TOPIC'")
		s.rules.Topic = "elsewhere"
		s.rules.Accepted = []string{"order.*"}
		assert.Equal(t, map[importer.Reason]int64{importer.NotFit: 1}, counts(s.ok()))
	})
}

// TestDryRun: it counts what would be moved, and writes nothing.
func TestDryRun(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		for _, id := range ids(30) {
			s.add(t, id, far(), `1`)
		}
		before := s.state()
		r := s.ok(func(o *importer.Options) { o.DryRun = true })
		assert.EqualValues(t, 30, r.Moved)
		assert.Equal(t, before, s.state())
		_, err := s.get(ids(1)[0])
		assert.ErrorIs(t, err, delay.ErrNotFound)
	})
}

// TestLimit: a run ends when it has moved as many as it may, and the next one goes on.
func TestLimit(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		for _, id := range ids(30) {
			s.add(t, id, far(), `1`)
		}
		limit := func(o *importer.Options) { o.Limit = 20 }
		r := s.ok(limit)
		assert.EqualValues(t, 20, r.Moved)
		assert.True(t, r.IsLimited)
		assert.EqualValues(t, 10, r.After.Waiting)
		assert.EqualValues(t, 10, s.ok(limit).Moved)
		s.isClean()
	})
}

// TestInterrupted: a run that is told to end finishes its batch, so that nothing is held.
func TestInterrupted(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		for _, id := range ids(300) {
			s.add(t, id, far(), `1`)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o := importer.Options{Queue: s.queue, Origin: s.origin(), Rules: s.rules, Step: func(name string) error {
			if name == "held" {
				cancel()
			}
			return nil
		}}
		r, err := importer.New(o).Run(ctx)
		require.ErrorIs(t, err, context.Canceled)
		assert.Positive(t, r.Moved)
		count, err := s.origin().Count(t.Context())
		require.NoError(t, err)
		assert.Zero(t, count.Held)
		assert.Equal(t, 300-r.Moved, count.Waiting)
		assert.Equal(t, 300-r.Moved, s.ok().Moved)
	})
}

// TestLock: a second import waits until the first one's lock is gone, and one whose lock is another's moves nothing.
func TestLock(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		s.add(t, "a", far(), `1`)
		w := s.other.(interface{ prefix() string })
		lock := w.prefix() + "delaybridge:lock"
		require.NoError(t, s.rdb.Set(t.Context(), lock, "of a dead one", 500*time.Millisecond).Err())
		assert.EqualValues(t, 1, s.ok().Moved)

		s.add(t, "b", far(), `1`)
		_, err := s.run(func(o *importer.Options) {
			o.Step = func(name string) error {
				if name == "scheduled" {
					return s.rdb.Set(t.Context(), lock, "of another", 0).Err()
				}
				return nil
			}
		})
		require.ErrorContains(t, err, "another import has taken over")
		assert.True(t, s.has(t, "b"))
		require.NoError(t, s.rdb.Del(t.Context(), lock).Err())
		r := s.ok()
		assert.EqualValues(t, 1, r.Moved)
		assert.EqualValues(t, 1, r.Before.Held)
		s.isClean()
	})
}

// TestForgetsNothingOfAnother: an import that has lost its lock takes nothing out of the journal, in which another one may have an
// item of the same id by then.
func TestForgetsNothingOfAnother(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		s.add(t, "a", far(), `1`)
		lock := s.other.(interface{ prefix() string }).prefix() + "delaybridge:lock"
		_, err := s.run(func(o *importer.Options) {
			o.Step = func(name string) error {
				switch name {
				case "scheduled":
					return s.cancel(t, "a")
				case "cancelled":
					return s.rdb.Set(t.Context(), lock, "of another", 0).Err()
				}
				return nil
			}
		})
		require.ErrorContains(t, err, "another import has taken over")
		require.NoError(t, s.rdb.Del(t.Context(), lock).Err())
		r := s.ok()
		assert.EqualValues(t, 1, r.Before.Held)
		assert.EqualValues(t, 1, r.Cancelled)
		s.isNowhere("a")
		s.isClean()
	})
}

// TestOtherQueue: what an import to another queue has in hand is not finished into this one.
func TestOtherQueue(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		s.add(t, "a", far(), `1`)
		_, err := s.run(crashAt("held"))
		require.ErrorIs(t, err, errCrash)
		s.queue.Name = "others"
		_, err = s.run()
		assert.ErrorContains(t, err, "--queue orders")
		s.queue.Name = "orders"
		assert.EqualValues(t, 1, s.ok().Moved)
	})
}

// TestChangedMeanwhile: an item that changes between being read and being held is read again.
func TestChangedMeanwhile(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		due := far()
		s.add(t, "a", due, `1`)
		s.add(t, "b", due, `1`)
		s.ok(func(o *importer.Options) {
			o.Origin = &changingOrigin{Origin: s.origin(), change: func() {
				s.add(t, "a", due.Add(time.Hour), `1`)
				s.add(t, "b", due, `2`)
			}}
		})
		s.isHere("a", due.Add(time.Hour))
		info, err := s.get("b")
		require.NoError(t, err)
		assert.Equal(t, "2", string(info.Body))
	})
}

// changingOrigin changes an item before the first hold.
type changingOrigin struct {
	importer.Origin

	change func()
}

func (o *changingOrigin) Hold(ctx context.Context, items []*importer.Item, isBusy func(*importer.Item) bool) ([]bool, error) {
	if change := o.change; change != nil {
		o.change = nil
		change()
	}
	return o.Origin.Hold(ctx, items, isBusy)
}

// TestAnswerLost: a step whose answer is lost, and which is made again, has the first one's answer.
func TestAnswerLost(t *testing.T) {
	inBoth(t, func(t *testing.T, s *scene) {
		for _, id := range ids(5) {
			s.add(t, id, far(), `1`)
		}
		r := s.ok(func(o *importer.Options) { o.Origin = twice{o.Origin} })
		assert.EqualValues(t, 5, r.Moved)
		assert.Zero(t, r.Cancelled)
		for _, id := range ids(5) {
			assert.False(t, s.has(t, id))
		}
		s.isClean()
	})
}

// twice makes each call twice.
type twice struct{ importer.Origin }

func (o twice) Hold(ctx context.Context, items []*importer.Item, isBusy func(*importer.Item) bool) ([]bool, error) {
	_, err := o.Origin.Hold(ctx, items, isBusy)
	held, again := o.Origin.Hold(ctx, items, isBusy)
	return held, errors.Join(err, again)
}

func (o twice) Remove(ctx context.Context, items []*importer.Item) ([]bool, error) {
	_, err := o.Origin.Remove(ctx, items)
	removed, again := o.Origin.Remove(ctx, items)
	return removed, errors.Join(err, again)
}

// TestNoSuchQueue: a misspelt queue is an error, not an empty one.
func TestNoSuchQueue(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(rdb *redis.Client, queue string) other { return &asynqWorld{rdb: rdb, queue: queue} })
	for _, origin := range []importer.Origin{
		importer.Asynq(s.rdb, s.name()+"-no", false, maxMessage), importer.BullMQ(s.rdb, "bull", s.name()+"-no", maxMessage),
	} {
		for _, isDry := range []bool{true, false} {
			_, err := s.run(func(o *importer.Options) { o.Origin, o.DryRun = origin, isDry })
			assert.ErrorIs(t, err, importer.ErrNoQueue, fmt.Sprint(isDry))
		}
	}
}
