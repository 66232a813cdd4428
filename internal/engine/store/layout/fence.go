package layout

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// fence is what a shard's meta says of the layout.
type fence struct {
	epoch, content string
	// drained is "<epoch> <ms>": since when no message is here that has another home.
	drained string
	// back counts the dead letters that came back, see drained.lua.
	back string
	born time.Time // zero where it is unknown
	// unread is set where the shard's node has not answered.
	unread bool
}

// BornField is the field of a shard's meta that tells when the shard was made, in
// milliseconds: Redis has lost what it had before. Earlier releases have none.
const BornField = "born"

// Born is since when each shard in use of the layout has what it has, by Redis'
// clock; zero where a shard is missing, or was made by an earlier release.
func (g *Registry) Born(ctx context.Context, layout *Layout) ([]time.Time, error) {
	fences, err := g.fences(ctx, layout.keys, 0, layout.InUse())
	born := make([]time.Time, len(fences))
	for shard, f := range fences {
		born[shard] = f.born
	}
	return born, err
}

// fences reads those of the shards from, to-1. With an error it has read some.
func (g *Registry) fences(ctx context.Context, shards []keys.Shard, from, to int) (list []fence, err error) {
	cmds, err := conn.AskShards(ctx, g.conn.Client(ctx), shards[from:to], func(pipe redis.Pipeliner, k keys.Shard) *redis.SliceCmd {
		return pipe.HMGet(ctx, k.Meta, "epoch", "layout", "drained", "redriven", "replaced", BornField)
	})
	if err != nil {
		err = fmt.Errorf("read shards of %s: %w", g.queue.Name, err)
	}
	for _, cmd := range cmds {
		values := cmd.Val()
		if len(values) == 0 {
			list = append(list, fence{unread: true})
			continue
		}
		text := func(i int) string { s, _ := values[i].(string); return s }
		f := fence{epoch: text(0), content: text(1), drained: text(2), back: text(3) + " " + text(4)}
		if ms, err := strconv.ParseInt(text(5), 10, 64); err == nil {
			f.born = time.UnixMilli(ms)
		}
		list = append(list, f)
	}
	return list, err
}

// DrainedAt reads the field drained of a shard's meta: when the shard had drained
// for the layout of that epoch.
func DrainedAt(drained, epoch string) (ms int64, ok bool) {
	of, at, _ := strings.Cut(drained, " ")
	ms, err := strconv.ParseInt(at, 10, 64)
	return ms, err == nil && of == epoch
}

// refusal is the answer of a shard that is bound to another layout.
type refusal struct {
	layout *Layout // the caller's
	shard  int
	epoch  string // the shard's, empty where it has none
}

func (r *refusal) Error() string { return "layout has changed" }

// IsRefusal reports whether a shard has refused a run, see [Registry.Reconcile].
func IsRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// Accepted is the refusal of a script that reads, if the shard is bound to another layout than this one.
func (l *Layout) Accepted(r *scripts.Reply, shard int) error {
	const reload = 1
	if r.Int(0) != reload {
		return nil
	}
	return l.Refused(r, shard)
}

// Refused reads a shard's refusal of a run for this layout.
func (l *Layout) Refused(r *scripts.Reply, shard int) error {
	epoch := r.Text(2)
	if r.Err != nil {
		return r.Err
	}
	return &refusal{layout: l, shard: shard, epoch: epoch}
}

// patience is how long a caller that a fence refuses waits for its layout to be
// published, before it finishes the change itself.
const patience = 250 * time.Millisecond

// Reconcile does what a refusal asks for: it loads the layout anew; gives the shard
// a new meta where Redis has lost it; raises the fence where a failover has lost
// that; finishes the change where that has not been done for long. Its errors show again when the caller repeats the run.
func (g *Registry) Reconcile(ctx context.Context, err error, since time.Time) {
	var r *refusal
	if !errors.As(err, &r) {
		return
	}
	g.stale.Store(r.layout)
	layout, err := g.Load(ctx)
	switch {
	case err != nil || r.epoch == layout.Epoch:
	case r.epoch == "":
		// Where the layout is another one by now, somebody else may have done it.
		if r.layout.Epoch == layout.Epoch && r.shard < layout.InUse() {
			_ = g.remake(ctx, layout, []int{r.shard})
		}
	case ahead(r.epoch, layout.Epoch):
		if time.Since(since) >= patience {
			_, _ = g.finish(ctx)
		}
	case r.shard < layout.Polled():
		_ = g.raise(ctx, layout, r.shard, r.shard+1, false)
	}
}
