package store

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/message"

	"github.com/delaybridge/delaybridge/internal/store/scripts"
)

const (
	// forgetAfter is how long earlier layouts are kept after they have drained:
	// as long as a repeated run of a call may ask them for what it did.
	forgetAfter = tombstone + MaxCall
	// fencesPerStep is how many shards one step looks at while no change is open,
	// fencesPerGlance how many a glance does.
	fencesPerStep   = 256
	fencesPerGlance = 16
	// pagesPerStep is how many pages of ids one step reads.
	pagesPerStep = 200
)

// Keeper keeps up the layout of a queue: one instance calls Step about once a
// second while the layout changes or something was lost, and Glance now and then
// where nothing tells of that. Two of them do no harm. It is not safe for
// concurrent use.
type Keeper struct {
	// Lost, where set, is told of shards that Redis had lost, messages and all,
	// and that were given a new meta. It is set before the first Step.
	Lost func(shards []int)

	q *Queue
	// after is forgetAfter, shorter in tests.
	after time.Duration
	at    int // the shard whose fence is looked at next
	epoch string
	looks map[int]*look
}

// NewKeeper returns the queue's keeper; it does no I/O.
func NewKeeper(q *Queue) *Keeper { return &Keeper{q: q, after: forgetAfter} }

// Step does a bounded part of what there is to do: it finishes a change that has
// begun, raises fences that a failover has lost, looks for shards that have
// drained, forgets earlier layouts that all have, and drops shards that no
// layout has any more. What it did not do, a later step does.
func (k *Keeper) Step(ctx context.Context) error { return k.step(ctx, fencesPerStep) }

// Glance is Step, but for how many shards it looks at where no change is open:
// the claims of their holders and the calls of producers tell what is wrong there.
func (k *Keeper) Glance(ctx context.Context) error { return k.step(ctx, fencesPerGlance) }

func (k *Keeper) step(ctx context.Context, shards int) error {
	q := k.q
	layout, err := q.LoadLayout(ctx)
	if err != nil {
		return err
	}
	if layout.Epoch != k.epoch {
		k.epoch, k.looks, k.at = layout.Epoch, map[int]*look{}, 0
	}
	from, to := 0, layout.Polled()
	if len(layout.Earlier) == 0 && layout.Next == 0 {
		from = k.at % to
		to = min(to, from+shards)
		k.at = to
	}
	fences, err := q.fences(ctx, layout.keys, from, to)
	if err != nil {
		return err
	}
	open, lost := layout.Next != 0, false
	for i, f := range fences {
		switch {
		case ahead(f.epoch, layout.Epoch):
			open = true
		case from+i >= layout.InUse(): // Finishing the change makes it.
		case f.epoch == "":
			lost = true
		case f.epoch != layout.Epoch || f.content == "":
			if err := q.raise(ctx, layout, from+i, from+i+1); err != nil {
				return err
			}
		}
	}
	switch {
	case lost:
		err = k.repair(ctx)
	case open:
		_, err = q.finishChange(ctx)
	case len(layout.dropping) > 0:
		_, err = q.drop(ctx, layout)
	case len(layout.Earlier) > 0:
		err = k.drain(ctx, layout, fences)
	}
	return err
}

func (k *Keeper) repair(ctx context.Context) error {
	lost, err := k.q.Repair(ctx)
	if err == nil && len(lost) > 0 && k.Lost != nil {
		k.Lost(lost)
	}
	return err
}

// drain looks for what is left in other places than the layout in force would
// put it, and forgets the earlier layouts when nothing is.
func (k *Keeper) drain(ctx context.Context, layout *Layout, fences []fence) error {
	youngest, pages, all := int64(0), pagesPerStep, true
	for shard, f := range fences {
		if ms, ok := f.drainedAt(layout.Epoch); ok {
			youngest = max(youngest, ms)
			continue
		}
		all = false
		if k.looks[shard] == nil {
			k.looks[shard] = &look{shard: shard}
		}
		if pages > 0 {
			if err := k.looks[shard].on(ctx, k.q, layout, &pages); err != nil {
				return fmt.Errorf("look through shard %d of %s: %w", shard, k.q.name, err)
			}
		}
	}
	if nowMs, _ := k.q.clock.nowMs(); all && nowMs-youngest > k.after.Milliseconds() {
		return k.q.forget(ctx, layout)
	}
	return nil
}

// drainedAt is when the shard had drained for the layout of that epoch.
func (f fence) drainedAt(epoch string) (ms int64, ok bool) {
	of, at, _ := strings.Cut(f.drained, " ")
	ms, err := strconv.ParseInt(at, 10, 64)
	return ms, err == nil && of == epoch && f.epoch == epoch
}

// forget ends the earlier layouts. The counters of the shards that go with them
// are kept first, in the same step: whoever repeats it finds that it was done.
func (q *Queue) forget(ctx context.Context, layout *Layout) error {
	fields := []any{"earlier", ""}
	if polled := layout.Polled(); polled > layout.Shards {
		total, dropping := maps.Clone(layout.Retired), []int(nil) // Others read the layout's.
		for shard := layout.Shards; shard < polled; shard++ {
			meta, err := q.conn.Client(ctx).HGetAll(ctx, layout.keys.shards[shard].meta).Result()
			if err != nil {
				return fmt.Errorf("read counters of shard %d of %s: %w", shard, q.name, err)
			}
			for name, value := range meta {
				if n, err := strconv.ParseInt(value, 10, 64); err == nil {
					total[name] += n
				}
			}
			dropping = append(dropping, shard)
		}
		var retired []string
		for name, n := range total {
			retired = append(retired, fmt.Sprintf("%s=%d", name, n))
		}
		fields = append(fields, "retired", strings.Join(retired, " "), "dropping", joinInts(dropping))
	}
	layout, err := newCopier(q).change(ctx, layout, fields...)
	if err != nil || len(layout.dropping) == 0 {
		return err
	}
	_, err = q.drop(ctx, layout)
	return err
}

// drop deletes the shards that no layout has any more.
func (q *Queue) drop(ctx context.Context, layout *Layout) (*Layout, error) {
	for _, shard := range layout.dropping {
		if shard < layout.Polled() {
			continue
		}
		k := newShardKeys(q.prefix, q.name, shard)
		_, err := q.conn.Run(ctx, scripts.Drop, []string{
			k.meta, k.msg, k.dead, k.claims, k.settled, k.due, k.deadlines, k.attempts, k.gone, k.goneTTL, k.deadMsg, k.holder,
			k.routes,
		})
		if err != nil {
			return nil, fmt.Errorf("drop shard %d of %s: %w", shard, q.name, err)
		}
	}
	return newCopier(q).change(ctx, layout, "dropping", "")
}

// look is how far one shard was looked through for messages that have another
// home. It reads the dead letters, the messages and the dead letters again: one
// that moves meanwhile is seen, or counted among those that came back. The
// ledger comes last: then no entry of another home can be added to it.
type look struct {
	shard   int
	witness string // a stranger that was there: it need not be looked for again
	phase   int
	cursor  string
	count   int // how many ids the next page has
	back    string
	ledger  uint64 // the cursor in the ledger
}

// phaseLedger is the phase in which the ledger is read.
const phaseLedger = 3

// pageBytes is how much one page of ids may make Redis read, bodies included.
const pageBytes = 256 << 10

// on looks further, at most as many pages as are left.
func (l *look) on(ctx context.Context, q *Queue, layout *Layout, pages *int) error {
	keys := layout.keys.shards[l.shard]
	if l.witness != "" {
		*pages--
		there, err := q.isThere(ctx, keys, l.witness)
		if there || err != nil {
			return err
		}
		*l = look{shard: l.shard}
	}
	for *pages > 0 {
		*pages--
		if l.phase == 0 && l.cursor == "" {
			fences, err := q.fences(ctx, layout.keys, l.shard, l.shard+1)
			if err != nil {
				return err
			}
			l.back, l.cursor, l.count = fences[0].back, "0", 1
		}
		if err := l.page(ctx, q, layout); err != nil || l.witness != "" {
			return err
		}
		if l.phase == phaseLedger && l.cursor == "" {
			return nil // A row of another home has not been told yet.
		}
		if l.phase > phaseLedger {
			_, err := q.conn.Run(ctx, scripts.Drained, []string{keys.meta}, layout.Epoch, l.back)
			*l = look{shard: l.shard}
			return err
		}
	}
	return nil
}

func (l *look) page(ctx context.Context, q *Queue, layout *Layout) error {
	if l.phase == phaseLedger {
		return l.ledgerPage(ctx, q, layout)
	}
	key, command := layout.keys.shards[l.shard].dead, "ZSCAN"
	if l.phase == 1 {
		key, command = layout.keys.shards[l.shard].msg, "HSCAN"
	}
	cmd, err := q.conn.Run(ctx, scripts.Scan, []string{key}, command, l.cursor, l.count)
	if err != nil {
		return err
	}
	r := scripts.NewReply(cmd)
	cursor, bytes, ids := r.Text(0), r.Int(1), r.List(2)
	for i := range ids.Values {
		id := ids.Text(i)
		if l.shard >= layout.Shards || layout.home(message.SplitMember(id)) != l.shard {
			l.witness = id
			return ids.Err
		}
	}
	switch {
	case bytes > pageBytes:
		l.count = max(1, l.count/4)
	case bytes*4 <= pageBytes:
		l.count = min(4*l.count, scanPage)
	}
	if l.cursor = cursor; cursor == "0" {
		l.phase, l.count = l.phase+1, 1
	}
	return r.Err
}

// isThere reports whether the message is in the shard, alive or dead.
func (q *Queue) isThere(ctx context.Context, k shardKeys, member string) (bool, error) {
	var lives, dead *redis.BoolCmd
	_, err := q.conn.Client(ctx).Pipelined(ctx, func(pipe redis.Pipeliner) error {
		lives, dead = pipe.HExists(ctx, k.msg, member), pipe.HExists(ctx, k.deadMsg, member)
		return nil
	})
	return err == nil && (lives.Val() || dead.Val()), err
}
