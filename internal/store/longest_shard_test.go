package store_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/store/storetest"
)

// BenchmarkLongestScript tells how long the longest script of each verb of a
// poller and an operator blocks Redis, at its limits, in milliseconds, and what
// they cost on average in milliseconds of its CPU: the best of all rounds, since a
// busy machine makes it longer. It is a figure to be read; -benchtime 10x takes
// ten rounds.
func BenchmarkLongestScript(b *testing.B) {
	for name, size := range map[string]struct{ bytes, n int }{"1KiB": {1 << 10, 2000}, "960KiB": {960 << 10, 24}} {
		for verb, run := range longest {
			b.Run(verb+"/"+name, func(b *testing.B) {
				rdb := connect(b, testenvPrivate(b, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000"))
				best, cpu := math.Inf(1), math.Inf(1)
				var began cost
				for range b.N {
					q := storetest.New(b, rdb, 1)
					requests := make([]store.Request, size.n)
					body := bytes.Repeat([]byte("x"), size.bytes)
					for i := range requests {
						requests[i] = store.Request{Message: &message.Message{ID: fmt.Sprintf("%05d", i), Topic: "t", Body: body}, When: past()}
					}
					for _, answer := range q.Producer().Schedule(b.Context(), requests, false, store.Durability{}) {
						require.NoError(b, answer.Err)
					}
					run(figure{B: b, rdb: rdb, q: q, bridge: newBridge(b, q), began: &began})
					best = min(best, longestMs(b, rdb))
					cpu = min(cpu, meanMs(b, rdb, began))
					storetest.Remove(b.Context(), rdb, q.Name(), 2)
				}
				b.ReportMetric(best, "ms")
				b.ReportMetric(cpu, "cpu-ms")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

type figure struct {
	*testing.B
	rdb    *redis.Client
	q      *store.Queue
	bridge *bridge
	began  *cost
}

// cost is what Redis has spent so far.
type cost struct {
	scripts int64
	cpu     time.Duration
}

// reset forgets what has been slow so far.
func (f figure) reset() {
	require.NoError(f, f.rdb.Do(f.Context(), "slowlog", "reset").Err())
	*f.began = cost{scripts: scriptCalls(f, f.rdb), cpu: busy(f, f.rdb)}
}

// meanMs is what a script has cost Redis' main thread since the last reset, on
// average, with the reading of its arguments and the writing of its answer.
func meanMs(b *testing.B, rdb *redis.Client, began cost) float64 {
	b.Helper()
	spent := busy(b, rdb) - began.cpu
	return float64(spent.Microseconds()) / 1000 / float64(scriptCalls(b, rdb)-began.scripts)
}

// settles claims all in turn and settles them with the verdict.
func (f figure) settles(v message.Verdict, measured bool) {
	for {
		claim := f.bridge.claim(store.MaxBatch)
		if len(claim.Messages) == 0 {
			return
		}
		if measured {
			f.reset()
		}
		f.bridge.settle(claim, v)
		if measured {
			return
		}
	}
}

// members are the dead letters.
func (f figure) members() (list []string) {
	f.settles(buried, false)
	require.NoError(f, f.q.Admin().DeadLetters(f.Context(), func(l message.DeadLetter) bool { list = append(list, l.Member); return true }))
	f.reset()
	return list
}

var longest = map[string]func(figure){
	"claim": func(f figure) { f.reset(); f.bridge.claim(store.MaxBatch) },
	"claim of a slot": func(f figure) {
		f.settles(parked, false)
		f.reset()
		f.bridge.claimSlot(parked.Slot, store.MaxBatch)
	},
	"settle ack":         func(f figure) { f.settles(acked, true) },
	"settle retry":       func(f figure) { f.settles(retried, true) },
	"settle park":        func(f figure) { f.settles(parked, true) },
	"settle dead letter": func(f figure) { f.settles(buried, true) },
	"settle part": func(f figure) {
		claim := f.bridge.claim(store.MaxBatch)
		s := settlement(claim, kept)
		s.Verdicts[0] = acked
		f.reset()
		_, err := f.q.Shard(0).Settle(f.Context(), s)
		require.NoError(f, err)
	},
	"settle stale": func(f figure) {
		claim := f.bridge.claim(store.MaxBatch)
		_, _, err := f.q.Shard(0).Reclaim(f.Context(), message.Reclaim{Instance: f.bridge.name, Stray: claim.Token})
		require.NoError(f, err)
		f.reset()
		_, err = f.q.Shard(0).Settle(f.Context(), settlement(claim, acked))
		require.NoError(f, err)
	},
	"reclaim": func(f figure) {
		f.settles(unknownOnce(f), false)
		claim := f.bridge.claimSlot(parked.Slot, store.MaxBatch)
		f.reset()
		_, _, err := f.q.Shard(0).Reclaim(f.Context(), message.Reclaim{Instance: f.bridge.name, Stray: claim.Token})
		require.NoError(f, err)
	},
	"redrive": func(f figure) {
		members := f.members()
		_, err := f.q.Admin().Redrive(f.Context(), members)
		require.NoError(f, err)
	},
	"purge": func(f figure) {
		members := f.members()
		_, err := f.q.Admin().Purge(f.Context(), members)
		require.NoError(f, err)
	},
	"parked": func(f figure) {
		claim := f.bridge.claim(store.MaxBatch)
		s := settlement(claim, parked)
		for i := range s.Verdicts {
			s.Verdicts[i].Slot = i + 1
			s.Parks = append(s.Parks, message.ParkedRoute{Slot: i + 1, Route: "route", Reason: "down"})
		}
		_, err := f.q.Shard(0).Settle(f.Context(), s)
		require.NoError(f, err)
		f.reset()
		_, err = f.q.Shard(0).Parked(f.Context())
		require.NoError(f, err)
	},
	"get in flight": func(f figure) {
		for range 4 {
			f.bridge.claim(store.MaxBatch)
		}
		f.reset()
		_, _, err := f.q.Producer().Get(f.Context(), "00999", "")
		require.NoError(f, err)
	},
	"scan": func(f figure) {
		keeper := f.q.Admin().NewKeeper()
		_, err := f.q.Layouts().SetShards(f.Context(), 2)
		require.NoError(f, err)
		f.settles(released, true) // One claim goes back.
		f.reset()
		require.NoError(f, keeper.Step(f.Context()))
	},
}

// unknownOnce parks, and leaves counts behind.
func unknownOnce(figure) message.Verdict {
	return message.Verdict{Verb: message.VerbPark, Slot: parked.Slot, Published: true, Attempts: unknown.Attempts}
}

// longestMs is the longest script since the last reset.
func longestMs(b *testing.B, rdb *redis.Client) float64 {
	b.Helper()
	entries, err := rdb.SlowLogGet(b.Context(), -1).Result()
	require.NoError(b, err)
	var most time.Duration
	for _, entry := range entries {
		if entry.Args[0] == "evalsha" || entry.Args[0] == "eval" {
			most = max(most, entry.Duration)
		}
	}
	return float64(most.Microseconds()) / 1000
}
