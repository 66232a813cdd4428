package layout

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

const (
	// fencesPerStep is how many shards one Step checks while no change is open,
	// fencesPerGlance how many one Glance does.
	fencesPerStep   = 256
	fencesPerGlance = 16
	// pagesPerStep is how many pages of ids one step reads.
	pagesPerStep = 200
)

// Keeper maintains the layout of a queue. One instance calls Step about once a
// second while the layout changes or something was lost, and Glance now and then
// otherwise. Two keepers do no harm. It is not safe for concurrent use.
type Keeper struct {
	registry *Registry
	after    time.Duration // see NewKeeper
	at       int           // the shard whose fence is checked next
	epoch    string
	looks    map[int]*look
}

// NewKeeper returns a keeper of the registry's layout; it does no I/O. It keeps
// earlier layouts for after once they have drained, which is as long as a
// repeated run may ask them what the first run did.
func NewKeeper(registry *Registry, after time.Duration) *Keeper {
	return &Keeper{registry: registry, after: after}
}

// Step does a bounded part of the work, and later steps the rest: it finishes a
// change that has begun, raises fences that a failover has lost, finds drained
// shards, forgets earlier layouts once all their shards have drained, and drops
// shards that no layout has any longer.
func (k *Keeper) Step(ctx context.Context) error { return k.step(ctx, fencesPerStep) }

// Glance is Step with fewer shards while no change is open, when claims of holders
// and calls of producers show what is wrong.
func (k *Keeper) Glance(ctx context.Context) error { return k.step(ctx, fencesPerGlance) }

func (k *Keeper) step(ctx context.Context, shards int) error {
	g := k.registry
	layout, err := g.Load(ctx)
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
	fences, err := g.fences(ctx, layout.keys, from, to)
	if err != nil {
		return err
	}
	open, lost := layout.Next != 0, false
	for i, f := range fences {
		switch {
		case ahead(f.epoch, layout.Epoch):
			open = true
		case from+i >= layout.InUse(): // Finishing the change makes that shard.
		case f.epoch == "":
			lost = true
		case f.epoch != layout.Epoch || f.content == "":
			if err := g.raise(ctx, layout, from+i, from+i+1, false); err != nil {
				return err
			}
		}
	}
	switch {
	case lost:
		_, err = g.Repair(ctx)
	case open:
		_, err = g.finish(ctx)
	case len(layout.dropping) > 0:
		_, err = g.drop(ctx, layout)
	case len(layout.Earlier) > 0:
		err = k.drain(ctx, layout, fences)
	}
	return err
}

// drain looks for messages outside the home that the layout in force gives
// them, and forgets the earlier layouts when none is left.
func (k *Keeper) drain(ctx context.Context, layout *Layout, fences []fence) error {
	g := k.registry
	youngest, pages, all := int64(0), pagesPerStep, true
	for shard, f := range fences {
		if ms, ok := DrainedAt(f.drained, layout.Epoch); ok && f.epoch == layout.Epoch {
			youngest = max(youngest, ms)
			continue
		}
		all = false
		if k.looks[shard] == nil {
			k.looks[shard] = &look{shard: shard}
		}
		if pages > 0 {
			if err := k.looks[shard].on(ctx, g, layout, &pages); err != nil {
				return fmt.Errorf("look through shard %d of %s: %w", shard, g.queue.Name, err)
			}
		}
	}
	if nowMs, _ := g.clock.NowMs(); all && nowMs-youngest > k.after.Milliseconds() {
		return g.forget(ctx, layout)
	}
	return nil
}

// look is the progress of a search of one shard for messages with another home. First
// it waits until the shard's tombstones of messages without a row have expired. Then
// it reads the dead letters, the messages, and the dead letters again, so that it
// sees a message that moves meanwhile, or the shard counts that one as come back. The
// ledger comes last, when no entry with another home can be added to it.
type look struct {
	shard   int
	witness string // a stranger found earlier: check it first, which may save the search
	phase   int
	cursor  string
	count   int // how many ids to read next
	back    string
	ledger  uint64 // the cursor in the ledger
	untilMs int64  // see remembers; 0: not known yet
}

// phaseLedger is the phase in which the ledger is read.
const phaseLedger = 3

// scanPage limits the entries of a page.
const scanPage = 1000

// longMemory is longer than a shard keeps a tombstone, except for messages
// without a row, whose compensations may be delivered again.
const longMemory = 2 * time.Minute

// pageBytes is how many bytes Redis may read for one page of ids, bodies included.
const pageBytes = 256 << 10

// on continues the search, within the pages that are left.
func (l *look) on(ctx context.Context, g *Registry, layout *Layout, pages *int) error {
	k := layout.keys[l.shard]
	if waits, err := l.remembers(ctx, g, k); waits || err != nil {
		return err
	}
	if l.witness != "" {
		*pages--
		there, err := g.isThere(ctx, k, l.witness)
		if there || err != nil {
			return err
		}
		l.again()
	}
	for *pages > 0 {
		*pages--
		if l.phase == 0 && l.cursor == "" {
			fences, err := g.fences(ctx, layout.keys, l.shard, l.shard+1)
			if err != nil {
				return err
			}
			l.back, l.cursor, l.count = fences[0].back, "0", 1
		}
		if err := l.page(ctx, g, layout); err != nil || l.witness != "" {
			return err
		}
		if l.phase == phaseLedger && l.cursor == "" {
			return nil // A row with another home has not been told yet.
		}
		if l.phase > phaseLedger {
			_, err := g.conn.Run(ctx, scripts.Drained, []string{k.Meta}, layout.Epoch, l.back)
			l.again()
			return err
		}
	}
	return nil
}

// again restarts the search.
func (l *look) again() { *l = look{shard: l.shard, untilMs: l.untilMs} }

// remembers reports whether the shard must be kept for its tombstones. Only
// those that were there at the first look can have another home: later messages
// are created where the layout puts them.
func (l *look) remembers(ctx context.Context, g *Registry, k keys.Shard) (bool, error) {
	nowMs, _ := g.clock.NowMs()
	if l.untilMs == 0 {
		last, err := g.conn.Client(ctx).ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: k.GoneTTL, Start: 0, Stop: 0, Rev: true}).Result()
		if err != nil {
			return false, fmt.Errorf("read tombstones: %w", err)
		}
		l.untilMs = nowMs
		if len(last) > 0 && int64(last[0].Score) > nowMs+longMemory.Milliseconds() {
			l.untilMs = int64(last[0].Score)
		}
	}
	return nowMs < l.untilMs, nil
}

func (l *look) page(ctx context.Context, g *Registry, layout *Layout) error {
	if l.phase == phaseLedger {
		return l.ledgerPage(ctx, g, layout)
	}
	key, command := layout.keys[l.shard].Dead, "ZSCAN"
	if l.phase == 1 {
		key, command = layout.keys[l.shard].Msg, "HSCAN"
	}
	cmd, err := g.conn.Run(ctx, scripts.Scan, []string{key}, command, l.cursor, l.count)
	if err != nil {
		return err
	}
	r := scripts.NewReply(cmd)
	cursor, bytes, ids := r.Text(0), r.Int(1), r.List(2)
	for _, id := range ids.Texts() {
		if l.isStranger(layout, id) {
			l.witness = id
			return ids.Err
		}
	}
	l.count = scripts.NextPage(l.count, bytes, pageBytes, scanPage)
	if l.cursor = cursor; cursor == "0" {
		l.phase, l.count = l.phase+1, 1
	}
	return r.Err
}

// isThere reports whether the message is in the shard, live or dead.
func (g *Registry) isThere(ctx context.Context, k keys.Shard, member string) (bool, error) {
	var lives, dead *redis.BoolCmd
	_, err := g.conn.Client(ctx).Pipelined(ctx, func(pipe redis.Pipeliner) error {
		lives, dead = pipe.HExists(ctx, k.Msg, member), pipe.HExists(ctx, k.DeadMsg, member)
		return nil
	})
	return err == nil && (lives.Val() || dead.Val()), err
}

// isStranger reports whether the message would be created in another shard.
func (l *look) isStranger(layout *Layout, member string) bool {
	return l.shard >= layout.Shards || layout.Home(message.SplitMember(member)) != l.shard
}

// ledgerPage looks for entries of the ledger with another home. If it finds
// one, it starts again.
func (l *look) ledgerPage(ctx context.Context, g *Registry, layout *Layout) error {
	if l.cursor == "" {
		l.cursor = "0"
	}
	page, next, err := g.conn.Client(ctx).HScan(ctx, layout.keys[l.shard].Settled, l.ledger, "", scanPage).Result()
	if err != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	for i := 0; i+1 < len(page); i += 2 {
		_, _, _, member := scripts.CutLedger(page[i+1])
		if l.isStranger(layout, member) {
			l.cursor, l.ledger = "", 0
			return nil
		}
	}
	if l.ledger = next; next == 0 {
		l.phase++
	}
	return nil
}
