// Package storetest looks at a queue from behind: it reads the raw keys of a
// shard and checks the invariants that must hold after every script, whoever
// ran it. Only tests import it.
package storetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
)

// Prefix is the prefix of the keys of all queues that [New] makes.
const Prefix = "delay"

// New makes a queue of a fresh name for topics of RabbitMQ, which has the
// laxest rules, and removes its keys at the end of the test.
func New(t testing.TB, rdb redis.UniversalClient, shards int) *store.Queue {
	t.Helper()
	q := store.New(rdb, Prefix, freshName())
	_, err := q.Layouts().Ensure(t.Context(), Layout(shards))
	require.NoError(t, err)
	t.Cleanup(func() { Remove(context.WithoutCancel(t.Context()), rdb, q.Name(), shards) })
	return q
}

// Layout is a layout for [layout.Registry.Ensure].
func Layout(shards int) store.Layout {
	return store.Layout{Shards: shards, Sink: message.RabbitMQ, MaxMessage: message.DefaultMaxSize}
}

// SetRules gives the queue other rules, as a bridge with another configuration does, and
// has q know them.
func SetRules(t testing.TB, q *store.Queue, rules layout.Rules) {
	t.Helper()
	l, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	want := *l
	want.Rules = rules
	_, err = q.Layouts().Ensure(t.Context(), want)
	require.NoError(t, err)
}

func freshName() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // It never fails.
	return "q-" + hex.EncodeToString(random[:])
}

// Remove deletes all keys of a queue; a Redis that is gone has none.
func Remove(ctx context.Context, rdb redis.UniversalClient, queue string, shards int) {
	names := []string{
		"due", "msg", "claims", "deadlines", "attempts", "gone", "gonettl", "dead", "deadmsg", "holder", "meta",
		"settled", "routes", "tags", "ended", "ends",
	}
	for shard := range shards {
		for _, name := range names {
			if rdb.Del(ctx, Key(queue, shard, name)).Err() != nil {
				return
			}
		}
	}
	for _, name := range []string{"layout", "instances", "audit", "jobs"} { // In a Cluster, each is elsewhere.
		_ = rdb.Del(ctx, Prefix+":"+queue+":"+name).Err()
	}
}

// Key is the full name of a shard's key, as of due, msg or claims.
func Key(queue string, shard int, name string) string {
	return Prefix + ":{" + queue + ":" + strconv.Itoa(shard) + "}:" + name
}

// Shard is what the keys of one shard held at one moment.
type Shard struct {
	Due, Deadlines, GoneTTL, Dead, Tags        map[string]int64
	Msg, Claims, Attempts, Gone, DeadMsg, Meta map[string]string
	Settled, Routes                            map[string]string
	// Ends is the history; what only a part of its keys has is empty.
	Ends map[string]string
	// Holder is the instance that holds the shard, and its last claim number.
	Holder string
}

// Dump reads all keys of a shard in one transaction.
func Dump(ctx context.Context, rdb redis.UniversalClient, queue string, shard int) (*Shard, error) {
	sets, hashes := map[string]*redis.ZSliceCmd{}, map[string]*redis.MapStringStringCmd{}
	var holder *redis.StringCmd
	_, err := rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, name := range []string{"due", "deadlines", "gonettl", "dead", "tags", "ended"} {
			sets[name] = pipe.ZRangeWithScores(ctx, Key(queue, shard, name), 0, -1)
		}
		for _, name := range []string{"msg", "claims", "attempts", "gone", "deadmsg", "meta", "settled", "routes", "ends"} {
			hashes[name] = pipe.HGetAll(ctx, Key(queue, shard, name))
		}
		holder = pipe.Get(ctx, Key(queue, shard, "holder"))
		return nil
	})
	if err != nil && err != redis.Nil { //nolint:errorlint // go-redis returns it bare, and wrapped would be another's
		return nil, fmt.Errorf("dump shard %d of %s: %w", shard, queue, err)
	}
	return &Shard{
		Due: scores(sets["due"]), Deadlines: scores(sets["deadlines"]),
		GoneTTL: scores(sets["gonettl"]), Dead: scores(sets["dead"]), Tags: scores(sets["tags"]),
		Msg: hashes["msg"].Val(), Claims: hashes["claims"].Val(), Attempts: hashes["attempts"].Val(),
		Gone: hashes["gone"].Val(), DeadMsg: hashes["deadmsg"].Val(), Meta: hashes["meta"].Val(),
		Settled: hashes["settled"].Val(), Routes: hashes["routes"].Val(), Ends: remembered(hashes["ends"].Val(), scores(sets["ended"])),
		Holder: holding(holder.Val()),
	}, nil
}

func remembered(ends map[string]string, ended map[string]int64) map[string]string {
	both := map[string]string{}
	for id := range ended {
		both[id] = ends[id]
	}
	for id := range ends {
		if _, known := ended[id]; !known {
			both[id] = ""
		}
	}
	return both
}

// holding is a holder without the instant of its last renewal.
func holding(holder string) string {
	return holder[:max(0, strings.LastIndexByte(holder, '|'))]
}

func scores(cmd *redis.ZSliceCmd) map[string]int64 {
	m := map[string]int64{}
	for _, z := range cmd.Val() {
		m[z.Member.(string)] = int64(z.Score)
	}
	return m
}

// Counter is one of the counters in meta; 0 if it was never raised.
func (s *Shard) Counter(name string) int64 {
	n, _ := strconv.ParseInt(s.Meta[name], 10, 64)
	return n
}

// InFlight returns the claimed ids with their scores.
func (s *Shard) InFlight() (map[string]int64, error) {
	ids := map[string]int64{}
	for token, packed := range s.Claims {
		for packed != "" {
			id, score, rest, err := unpack(packed)
			if err != nil {
				return nil, fmt.Errorf("claim %s: %w", token, err)
			}
			if _, twice := ids[id]; twice {
				return nil, fmt.Errorf("%q is in two claims", id)
			}
			ids[id], packed = score, rest
		}
	}
	return ids, nil
}
