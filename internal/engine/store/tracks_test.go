package store_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// gate is a connection whose next script its holder holds back: clients that are
// made of others lose their hooks, but not how they dial.
type gate struct {
	net.Conn

	holder *holder
}

func (g gate) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("evalsha")) && g.holder.hold.CompareAndSwap(true, false) {
		g.holder.held <- struct{}{}
		<-g.holder.letGo
	}
	return g.Conn.Write(p)
}

// TestCoalescingTracks: while runs of one track are under way, those of another one
// leave, and those of the same wait.
func TestCoalescingTracks(t *testing.T) {
	t.Parallel()
	h := &holder{held: make(chan struct{}, 1), letGo: make(chan struct{}, 1)}
	rdb := connect(t, testenvPrivate(t), func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return gate{conn, h}, err
		}
	})
	q := storetest.New(t, rdb, 2*store.Tracks).WithCoalescing()
	layout, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	create(t, q, "known", later()) // Redis knows the script.
	ids := make([]string, layout.Shards)
	for i, missing := 0, len(ids); missing > 0; i++ {
		id := fmt.Sprint("m-", i)
		if home := layout.Homes(id, "")[0]; ids[home] == "" {
			ids[home] = id
			missing--
		}
	}
	c := &callers{TB: t, q: q, rdb: rdb, holder: h}
	var answers [2 * store.Tracks]store.Answer
	c.first(c.schedules(t.Context(), &answers[0], ids[0], ""))
	c.join(c.schedules(t.Context(), &answers[store.Tracks], ids[store.Tracks], ""))
	for i := range answers {
		if i%store.Tracks != 0 {
			c.schedules(t.Context(), &answers[i], ids[i], "")()
			answered(t, store.Created, answers[i])
		}
	}
	c.release()
	answered(t, store.Created, answers[0])
	answered(t, store.Created, answers[store.Tracks])
}
