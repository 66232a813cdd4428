package store_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

var crowdCalls = slices.Concat(producerCalls, shardCalls, historyCalls)

// scriptSources are the scripts by their names.
var scriptSources = sync.OnceValue(func() map[string]string {
	files, err := os.ReadDir("scripts")
	if err != nil {
		panic(err) // The folder is beside this file.
	}
	sources := map[string]string{}
	for _, file := range files {
		if filepath.Ext(file.Name()) != ".lua" {
			continue
		}
		source, isAlone := string(must(os.ReadFile("scripts/"+file.Name()))), true
		for _, shared := range []struct{ used, name string }{{"first_at(", "first"}, {"renamed(", "uid"}, {"first_token(theirs)", "uid"}, {"tags('Z", "tags"}, {"remember(", "ends"}, {" limit(", "limit"}, {" where(KEYS", "where"}, {"topic_of(", "topic"}, {" within(", "within"}} {
			if strings.Contains(source, shared.used) {
				source = string(must(os.ReadFile("scripts/shared/"+shared.name+".lua"))) + source
				isAlone = false
			}
		}
		if !isAlone {
			source = string(must(os.ReadFile("scripts/shared/number.lua"))) + source
		}
		sources[strings.TrimSuffix(file.Name(), ".lua")] = source
	}
	return sources
})

func scriptSHA(name string) string {
	sum := sha1.Sum([]byte(scriptSources()[name])) //nolint:gosec // see above
	return hex.EncodeToString(sum[:])
}

// scriptWatch is a hook that takes each script's time, one script at a time.
type scriptWatch struct {
	cpu   func() time.Duration // what the server has spent so far
	names map[string]string    // by SHA

	mu      sync.Mutex
	longest map[string]time.Duration // by name, of those that ran since the last reset
}

// watchScripts makes the server know all scripts and takes the time of those that rdb runs.
func watchScripts(tb testing.TB, rdb *redis.Client, cpu func() time.Duration) *scriptWatch {
	w := &scriptWatch{cpu: cpu, names: map[string]string{}, longest: map[string]time.Duration{}}
	for name, source := range scriptSources() {
		sha, err := rdb.ScriptLoad(tb.Context(), source).Result()
		require.NoError(tb, err)
		w.names[sha] = name
	}
	rdb.AddHook(w)
	return w
}

// ProcessHook implements [redis.Hook].
func (w *scriptWatch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		before := w.cpu()
		err := next(ctx, cmd)
		name := w.names[cmd.Args()[1].(string)]
		w.longest[name] = max(w.longest[name], w.cpu()-before)
		return err
	}
}

// DialHook implements [redis.Hook].
func (*scriptWatch) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (*scriptWatch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (w *scriptWatch) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.longest)
}

// TestLongestScripts keeps the table of the longest scripts complete.
func TestLongestScripts(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenvPrivate(t))
	watch := watchScripts(t, rdb, func() time.Duration { return 0 })
	missing := maps.Clone(scriptSources())
	for _, call := range crowdCalls {
		c := newCrowd(t, rdb, 4, 100)
		call.before(c)
		watch.reset()
		call.call(c)
		require.Contains(t, watch.longest, call.script(), "%s does not run it", call.name)
		delete(missing, call.script())
	}
	require.Empty(t, missing, "scripts without a call in the table")
}

// BenchmarkLongestScript prints how long the longest script of each call blocks
// Redis, at its limits and in the worst state of its keys: milliseconds of CPU of
// its main thread, with the reading of its arguments and the writing of its
// answer, which others on the machine do not make longer by as much as the time
// on a clock. It is a figure to be read; -benchtime 10x takes ten rounds.
func BenchmarkLongestScript(b *testing.B) {
	const header = 256 // of a message, at the most
	sizes := []struct {
		name     string
		bytes, n int
	}{{"1KiB", 1 << 10, 2 * store.MaxBatch}, {"960KiB", 960 << 10, 24}}
	found := map[string][2]string{}
	for at, size := range sizes {
		for _, call := range crowdCalls {
			b.Run(call.name+"/"+size.name, func(b *testing.B) {
				rounds := longestRounds(b, call, size.n, size.bytes-header)
				median, least := rounds[len(rounds)/2].Seconds()*1e3, rounds[0].Seconds()*1e3
				b.ReportMetric(median, "ms/median")
				b.ReportMetric(least, "ms/least")
				b.ReportMetric(0, "ns/op")
				row := found[call.name]
				row[at] = fmt.Sprintf("%.2f\t%.2f", median, least)
				found[call.name] = row
			})
		}
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "\nscript\tmessages\t1 KiB median\tleast, ms\t960 KiB median\tleast, ms")
	for _, call := range crowdCalls {
		if row, ok := found[call.name]; ok {
			_, _ = fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", call.name, mostMessages(call.script()), row[0], row[1])
		}
	}
	_ = table.Flush()
}

// mostMessages is how many messages, slots or entries a script handles at the most.
func mostMessages(script string) int {
	switch script {
	case "members":
		return inspect.MaxNames
	default:
		return store.MostMessages[script]
	}
}

// longestRounds is how long the call's longest script took in each round, sorted.
func longestRounds(b *testing.B, call crowdCall, n, size int) (rounds []time.Duration) {
	server := testenvPrivate(b, "--activerehashing", "no")
	info := connect(b, server)
	cpu := func() time.Duration { return busy(b, info) }
	idle := time.Hour // what asking costs
	for range 50 {
		before := cpu()
		idle = min(idle, cpu()-before)
	}
	rdb := connect(b, server)
	watch := watchScripts(b, rdb, cpu)
	for b.Loop() {
		var took time.Duration
		for _, beside := range []func(*crowd){(*crowd).nobody, (*crowd).others} {
			c := newCrowd(b, rdb, n, size)
			call.before(c)
			beside(c)
			watch.reset()
			call.call(c)
			took = max(took, watch.longest[call.script()])
			c.empty()
		}
		require.NotZero(b, took)
		rounds = append(rounds, max(0, took-idle))
	}
	slices.Sort(rounds)
	return rounds
}
