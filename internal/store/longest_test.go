package store_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/store/storetest"
)

// crowd is a queue of one shard with many messages of one size, and the calls
// of producers that meet them all at once.
type crowd struct {
	testing.TB
	rdb    *redis.Client
	q      *store.Queue
	bridge *bridge
	n      int
	body   []byte
	life   int // tells the messages of one round from those of the next
}

func newCrowd(tb testing.TB, url string, n, size int) *crowd {
	rdb := connect(tb, url)
	q := storetest.New(tb, rdb, 1)
	return &crowd{TB: tb, rdb: rdb, q: q, bridge: newBridge(tb, q), n: n, body: bytes.Repeat([]byte("x"), size)}
}

func (c *crowd) id(i int) string    { return fmt.Sprintf("m-%d-%05d", c.life, i) }
func (c *crowd) token(i int) string { return fmt.Sprintf("~%05d%010d", c.life, i) }

func (c *crowd) requests(body []byte, again func(id string) *store.Earlier) []store.Request {
	list := make([]store.Request, c.n)
	for i := range list {
		list[i] = store.Request{Message: &message.Message{ID: c.id(i), Topic: "t", Body: body}, When: past()}
		if again != nil {
			list[i].Earlier = again(c.id(i))
		}
	}
	return list
}

func (c *crowd) rows(body []byte) []store.Row {
	list := make([]store.Row, c.n)
	for i := range list {
		list[i] = store.Row{
			Token: c.token(i), DueAt: time.UnixMilli(past().Ms), Message: &message.Message{ID: c.id(i), Topic: "t", Body: body},
		}
	}
	return list
}

func (c *crowd) ended() []store.SettledRow {
	list := make([]store.SettledRow, c.n)
	for i := range list {
		list[i] = store.SettledRow{ID: c.id(i), Token: c.token(i), What: store.FateCancelled}
	}
	return list
}

func (c *crowd) all(code store.Code, answers []store.Answer) {
	c.Helper()
	for _, a := range answers {
		answered(c, code, a)
	}
}

// Who is there before the calls.

func (c *crowd) nobody() {}

func (c *crowd) waiting() {
	c.all(store.Created, c.q.Producer().Schedule(c.Context(), c.requests(c.body, nil), false, store.Durability{}))
}

func (c *crowd) ofRows() { c.all(store.Created, c.q.Rows().Put(c.Context(), c.rows(c.body))) }

func (c *crowd) dead() {
	c.waiting()
	for left := c.n; left > 0; {
		claim := c.bridge.claim(500)
		require.NotEmpty(c, claim.Messages)
		left -= len(claim.Messages)
		c.bridge.settle(claim, buried)
	}
}

// crowdCalls are the calls, and whether they read, or write, the bodies of all messages.
var crowdCalls = []struct {
	name   string
	before func(*crowd)
	call   func(*crowd)
	reads  bool
}{
	{"schedule", (*crowd).nobody, func(c *crowd) { c.waiting() }, true},
	{"schedule of dead ids", (*crowd).dead, func(c *crowd) {
		list := c.q.Producer().Schedule(c.Context(), c.requests(nil, nil), false, store.Durability{})
		c.all(store.Dead, list)
		require.Equal(c, buried.Reason, list[c.n-1].Reason)
	}, true},
	{"schedule, second run", (*crowd).waiting, func(c *crowd) {
		c.all(store.Waiting, c.q.Producer().Schedule(c.Context(), c.requests(nil, c.again(false)), false, store.Durability{}))
	}, true},
	{"schedule of dead ids, second run", (*crowd).dead, func(c *crowd) {
		c.all(store.Dead, c.q.Producer().Schedule(c.Context(), c.requests(nil, c.again(false)), false, store.Durability{}))
	}, true},
	{"replace", (*crowd).waiting, func(c *crowd) {
		c.all(store.Replaced, c.q.Producer().Schedule(c.Context(), c.requests(nil, nil), true, store.Durability{}))
	}, true},
	{"replace of dead ids", (*crowd).dead, func(c *crowd) {
		c.all(store.Replaced, c.q.Producer().Schedule(c.Context(), c.requests(nil, nil), true, store.Durability{}))
	}, true},
	{"replace, second run", (*crowd).waiting, func(c *crowd) {
		for _, a := range c.q.Producer().Schedule(c.Context(), c.requests(nil, c.again(true)), true, store.Durability{}) {
			require.ErrorIs(c, a.Err, store.ErrUnknown)
		}
	}, true},
	{"put", (*crowd).nobody, (*crowd).ofRows, true},
	{"put of what is here", (*crowd).ofRows, func(c *crowd) { c.all(store.Mine, c.q.Rows().Put(c.Context(), c.rows(nil))) }, true},
	{"put of dead ids", (*crowd).dead, func(c *crowd) { c.all(store.Dead, c.q.Rows().Put(c.Context(), c.rows(nil))) }, true},
	{"peek", (*crowd).ofRows, func(c *crowd) { c.all(store.Mine, c.q.Rows().Peek(c.Context(), c.rows(nil))) }, true},
	{"cancel", (*crowd).waiting, func(c *crowd) { require.Equal(c, store.Done, cancel(c, c.q, c.id(0))) }, false},
	{"cancel of a dead id", (*crowd).dead, func(c *crowd) { require.Equal(c, store.Done, cancel(c, c.q, c.id(0))) }, false},
	{"reschedule", (*crowd).waiting, func(c *crowd) { require.Equal(c, store.Done, reschedule(c, c.q, c.id(0), later())) }, false},
	{"reschedule of a dead id", (*crowd).dead, func(c *crowd) { require.Equal(c, store.Done, reschedule(c, c.q, c.id(0), later())) }, false},
	{"remove", (*crowd).ofRows, func(c *crowd) {
		n, err := c.q.Rows().Remove(c.Context(), c.ended())
		require.NoError(c, err)
		require.Equal(c, c.n, n)
	}, true},
	{"rows", (*crowd).ofRows, func(c *crowd) {
		n := 0
		for cursor := "0"; ; {
			rows, next, _, err := c.q.Rows().RowsPage(c.Context(), 0, cursor, store.MaxBatch)
			require.NoError(c, err)
			if n += len(rows); next == "0" {
				break
			}
			cursor = next
		}
		require.GreaterOrEqual(c, n, c.n)
	}, true},
}

// empty forgets all messages.
func (c *crowd) empty() {
	for _, name := range []string{"due", "msg", "attempts", "gone", "gonettl", "dead", "deadmsg", "settled"} {
		require.NoError(c, c.rdb.Unlink(c.Context(), storetest.Key(c.q.Name(), 0, name)).Err())
	}
}

// again names an earlier call for each message, of which nothing is known.
func (c *crowd) again(replace bool) func(string) *store.Earlier {
	c.Helper()
	now, err := redisNow(c.Context(), c.rdb)
	require.NoError(c, err)
	for at := now; at <= now+2; { // What is there came before the calls.
		at, err = redisNow(c.Context(), c.rdb)
		require.NoError(c, err)
	}
	return c.q.Producer().EarlierCall(replace)
}

// TestScriptsReadLittle meets large messages: no script reads more than one of them.
func TestScriptsReadLittle(t *testing.T) {
	t.Parallel()
	url := testenvPrivate(t)
	for _, call := range crowdCalls {
		t.Run(call.name, func(t *testing.T) {
			c := newCrowd(t, url, 8, 900_000)
			call.before(c)
			before := scriptCalls(t, c.rdb)
			call.call(c)
			if call.reads {
				require.GreaterOrEqual(t, scriptCalls(t, c.rdb)-before, int64(c.n), "two of them are more than a script may read")
			}
			c.empty()
		})
	}
}

// BenchmarkLongestProducerScript prints, for each call at its limits, how long
// its longest script blocks Redis: the median of several rounds, and the least,
// which is nearer the truth on a busy machine.
func BenchmarkLongestProducerScript(b *testing.B) {
	url := testenvPrivate(b, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000")
	const header = 256 // of a message, at the most
	for size, n := range map[int]int{1 << 10: store.MaxBatch, 960 << 10: 32} {
		for _, call := range crowdCalls {
			b.Run(fmt.Sprintf("%s/%dKiB", call.name, size>>10), func(b *testing.B) {
				c := newCrowd(b, url, n, size-header)
				var longest []time.Duration
				for b.Loop() {
					c.life++
					call.before(c)
					require.NoError(b, c.rdb.Do(b.Context(), "slowlog", "reset").Err())
					call.call(c)
					longest = append(longest, longestScript(b, c.rdb))
					c.empty()
				}
				slices.Sort(longest)
				b.ReportMetric(float64(longest[len(longest)/2].Microseconds())/1000, "ms/longest-median")
				b.ReportMetric(float64(longest[0].Microseconds())/1000, "ms/longest-least")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func longestScript(tb testing.TB, rdb *redis.Client) (longest time.Duration) {
	tb.Helper()
	log, err := rdb.SlowLogGet(tb.Context(), -1).Result()
	require.NoError(tb, err)
	for _, entry := range log {
		if len(entry.Args) > 0 && strings.HasPrefix(entry.Args[0], "eval") {
			longest = max(longest, entry.Duration)
		}
	}
	require.NotZero(tb, longest)
	return longest
}
