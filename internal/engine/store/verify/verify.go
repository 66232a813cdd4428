// Package verify checks invariant I6 and the history of a whole queue while producers and
// pollers work, and repairs what it can repair without guessing. Package sound says what must
// hold. A walk finds suspects, and mend.lua judges each one again atomically.
package verify

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
	"github.com/delaybridge/delaybridge/internal/engine/store/sound"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const (
	// pageSize is about how many entries one step of a walk reads, and pageBytes how
	// many bytes of messages Redis may scan for it.
	pageSize  = 256
	pageBytes = 1 << 20
	// saidMost is how many breaches of a shard are remembered, so that each is reported once.
	saidMost = 100_000
	// lostDeadline is the new deadline of a claim that had lost its own: any live
	// instance extends it before that.
	lostDeadline = time.Minute
	// lostTombstone is the new expiry of a tombstone that had lost its own: as long as a
	// broker may deliver a compensation again.
	lostTombstone = 24 * time.Hour
)

// Options configure a verification.
type Options struct {
	// Mend repairs what can be repaired without guessing. A message that has lost its due
	// time or its body goes to the dead letters, with that reason.
	Mend bool
	// Rate limits the entries read per second; 0 means no limit.
	Rate int
	// Progress, if not nil, is called after every step with the number of entries read,
	// and about how many there are.
	Progress func(looked, total int64)
}

// Breach is a part of invariant I6 that does not hold.
type Breach struct {
	sound.Finding

	Shard int
	// Mended is set if it holds again.
	Mended bool
}

// verification is the verification of one queue.
type verification struct {
	queue   *store.Queue
	options Options
	report  func(Breach) error
	layout  *store.Layout

	pace pace
}

// pace is the progress of a verification.
type pace struct {
	began         time.Time
	looked, total int64
}

// Run checks all shards of a queue in small steps and calls found for each breach. An error of
// found ends it. Its own error is [store.ErrNoLayout] if nobody has used the queue.
func Run(ctx context.Context, queue *store.Queue, asked Options, found func(Breach) error) (err error) {
	v := &verification{queue: queue, options: asked, report: found, pace: pace{began: time.Now()}}
	if v.layout, err = queue.AwaitLayout(ctx); err != nil {
		return err
	}
	stats := make([]inspect.ShardStats, v.layout.InUse())
	for shard := range stats {
		if stats[shard], err = v.stats(ctx, shard); err != nil {
			return err
		}
		ends, err := v.countEnds(ctx, shard)
		if err != nil {
			return err
		}
		// Waiting messages are read in due and msg, and so on.
		v.pace.total += 2*(stats[shard].Waiting+stats[shard].Dead+ends) + stats[shard].InFlight
	}
	for shard := range stats {
		if err := v.shard(ctx, shard, &stats[shard]); err != nil {
			return fmt.Errorf("verify shard %d: %w", shard, err)
		}
	}
	return nil
}

func (v *verification) stats(ctx context.Context, shard int) (inspect.ShardStats, error) {
	return store.Repeat(ctx, v.queue, func(*store.Layout) (inspect.ShardStats, error) { return inspect.NewAdmin(v.queue).Stats(ctx, shard) })
}

func (v *verification) shard(ctx context.Context, shard int, stats *inspect.ShardStats) error {
	w := &walk{verification: v, shard: shard, keys: v.layout.Keys()[shard], reported: map[sound.Finding]bool{}}
	if err := w.whole(ctx, stats); err != nil {
		return err
	}
	if err := w.claims(ctx); err != nil {
		return err
	}
	k := &w.keys
	for _, part := range []struct {
		command, key string
		look         look
	}{
		{"ZSCAN", k.Due, w.counted(w.look)},
		{"ZSCAN", k.Dead, w.counted(w.look)},
		{"HSCAN", k.Msg, w.counted(w.unless(k.Due))}, // Waiting messages were checked already.
		{"HSCAN", k.DeadMsg, w.counted(w.unless(k.Dead))},
		{"HSCAN", k.Attempts, w.unless(k.Due)},
		{"HSCAN", k.Gone, w.lacking(sound.NoExpiry, w.scored, k.GoneTTL)},
		{"ZSCAN", k.GoneTTL, w.lacking(sound.NoTombstone, w.hashed, k.Gone)},
		{"ZSCAN", k.Tags, w.tags},
	} {
		if err := w.scan(ctx, part.command, part.key, part.look); err != nil {
			return err
		}
	}
	return w.history(ctx)
}

// walk checks one shard.
type walk struct {
	*verification
	shard int
	keys  keys.Shard
	// reported are the breaches reported so far, since a message in several keys is met several times.
	reported map[sound.Finding]bool
}

// whole checks the shard's counters and epoch.
func (w *walk) whole(ctx context.Context, stats *inspect.ShardStats) error {
	for _, finding := range sound.Sum(stats.Counters, stats.Waiting+stats.InFlight+stats.Dead) {
		if err := w.breach(finding, false); err != nil {
			return err
		}
	}
	if stats.Epoch == w.layout.Epoch {
		return nil
	}
	// A change of the shards may be under way, or have just ended.
	layout, err := w.queue.LoadLayout(ctx)
	if err != nil || layout.Next != 0 || w.shard >= layout.InUse() {
		return err
	}
	now, err := w.stats(ctx, w.shard)
	if err != nil || now.Epoch == layout.Epoch {
		return err
	}
	return w.breach(sound.Finding{Kind: sound.Lost, Detail: fmt.Sprintf("the layout has the epoch %s, the shard %q", layout.Epoch, now.Epoch)}, false)
}

// judgeAll judges the suspects again.
func (w *walk) judgeAll(ctx context.Context, suspects []sound.Finding) error {
	for _, suspect := range suspects {
		if err := w.judge(ctx, suspect, ""); err != nil {
			return err
		}
	}
	return nil
}

// Answers of the script.
const (
	mendSound  = 0
	mendMended = 2
)

// judge judges one suspect again, atomically, and repairs it if asked to. life is the
// stored message by which a tag was judged.
func (w *walk) judge(ctx context.Context, suspect sound.Finding, life string) error {
	switch suspect.Kind {
	case sound.Unreadable: // It is one value, so the judgement is atomic already.
		return w.breach(suspect, false)
	case sound.WrongHome:
		layout, err := w.queue.LoadLayout(ctx)
		if err != nil || slices.Contains(layout.Homes(message.SplitMember(suspect.Name)), w.shard) {
			return err
		}
		return w.breach(suspect, false)
	default:
	}
	answer, err := w.mend(ctx, suspect, life, 0)
	if err != nil || answer == mendSound {
		return err
	}
	return w.breach(suspect, answer == mendMended)
}

// mend runs the script, which repairs only if asked to. most is how many ends may stay.
func (w *walk) mend(ctx context.Context, suspect sound.Finding, life string, most int) (answer int, err error) {
	k := w.keys
	ended, ends := k.History()
	err = w.queue.Repeat(ctx, func(*store.Layout) error {
		cmd, err := w.queue.Run(ctx, scripts.Mend,
			[]string{k.Due, k.Msg, k.Claims, k.Deadlines, k.Attempts, k.Dead, k.DeadMsg, k.Meta, k.Gone, k.GoneTTL, k.Tags, ended, ends},
			string(suspect.Kind), suspect.Name, scripts.Flag(w.options.Mend), suspect.Tag, life,
			lostDeadline.Milliseconds(), lostTombstone.Milliseconds(), most, endsAtOnce)
		if err != nil {
			return err
		}
		answer, err = cmd.Int()
		return err
	})
	return answer, err
}

func (w *walk) breach(f sound.Finding, mended bool) error {
	if w.reported[f] {
		return nil
	}
	if len(w.reported) < saidMost {
		w.reported[f] = true
	}
	return w.report(Breach{Finding: f, Shard: w.shard, Mended: mended})
}

// step counts entries, keeps the pace, and reports progress.
func (w *walk) step(ctx context.Context, entries int) error {
	p := &w.pace
	p.looked += int64(entries)
	if w.options.Progress != nil {
		w.options.Progress(p.looked, max(p.looked, p.total))
	}
	if w.options.Rate > 0 {
		due := time.Duration(float64(p.looked) / float64(w.options.Rate) * float64(time.Second))
		wait.Sleep(ctx, due-time.Since(p.began))
	}
	return ctx.Err()
}
