package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// shim stands in front of each script on a real server, and gives it the story's clock: of TIME,
// and of what lives for a time.
const shim = `local real, redis = redis, {REDIS_VERSION_NUM = redis.REDIS_VERSION_NUM}
local at = real.call('HMGET', 'sim:clock', 's', 'us')
local at_ms = at[1] * 1000 + math.floor(at[2] / 1000)
local function over(key)
  local till = real.call('HGET', 'sim:until', key)
  if till and till + 0 < at_ms then real.call('DEL', key) real.call('HDEL', 'sim:until', key) return nil end
  return till and till - at_ms
end
local function run(call, name, key, ...)
  if name == 'TIME' then return at end
  if name == 'SPUBLISH' or name == 'PUBLISH' then return 0 end
  if name == 'GET' or name == 'SET' then over(key) end
  if name == 'PTTL' then return over(key) or real.call('EXISTS', key) - 2 end
  local args = {...}
  if name == 'SET' and args[2] == 'PX' then
    real.call('HSET', 'sim:until', key, string.format('%d', at_ms + args[3]))
    return call(name, key, args[1])
  end
  return call(name, key, ...)
end
redis.call = function(...) return run(real.call, ...) end
redis.pcall = function(...) return run(real.pcall, ...) end
`

// recorded is one command that the Redis of a story was given, and what it has answered.
type recorded struct {
	at      time.Time
	command []string
	reply   any
}

// TestRealRedis gives all commands of some stories to a real server, and compares each answer.
func TestRealRedis(t *testing.T) {
	server := testenv.StartRedis(t)
	options, err := redis.ParseURL(server.URL())
	require.NoError(t, err)
	options.Protocol = 2
	rdb := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	for seed := range uint64(min(*seeds, realSeeds)) {
		story := record(t, *first+seed)
		require.NoError(t, rdb.FlushAll(t.Context()).Err())
		for chunk := range slices.Chunk(story, 200) {
			replay(t, rdb, *first+seed, chunk)
		}
		t.Logf("seed %d: %d commands", *first+seed, len(story))
	}
}

// realSeeds is how many stories are given to a real server at the most.
const realSeeds = 10

// record tells a story without failovers, which are no commands.
func record(t *testing.T, seed uint64) (story []recorded) {
	t.Helper()
	leaveOut := map[int]bool{}
	for _, d := range newPlan(seed, nil).decisions {
		if d.kind == "restore" || d.kind == "lost shard" {
			leaveOut[d.index] = true
		}
	}
	recording = func(at time.Time, command []string, reply any) { story = append(story, recorded{at, command, reply}) }
	defer func() { recording = nil }()
	o := simulate(t, seed, leaveOut, nil)
	require.Empty(t, o.Failed)
	return story
}

// recording, unless nil, is told of each command.
var recording func(at time.Time, command []string, reply any)

func replay(t *testing.T, rdb *redis.Client, seed uint64, chunk []recorded) {
	t.Helper()
	pipe := rdb.Pipeline()
	answers := make([]*redis.Cmd, len(chunk))
	for i, r := range chunk {
		name := strings.ToLower(r.command[0])
		pipe.HSet(t.Context(), "sim:clock", "s", r.at.Unix(), "us", r.at.Nanosecond()/1000)
		args := make([]any, len(r.command))
		for n, arg := range r.command {
			args[n] = arg
		}
		switch {
		case name == "evalsha" && theEngine.scripts[r.command[1]] != nil:
			args[0], args[1] = "eval", shim+theEngine.scripts[r.command[1]].source
		case name == "eval":
			args[1] = shim + r.command[1]
		}
		if _, failed := r.reply.(redisError); failed || name == "time" || name == "wait" || name == "waitaof" {
			continue
		}
		answers[i] = pipe.Do(t.Context(), args...)
	}
	_, _ = pipe.Exec(t.Context()) // Each has its error.
	for i, r := range chunk {
		if answers[i] == nil {
			continue
		}
		got, err := answers[i].Result()
		if err == redis.Nil { //nolint:errorlint // go-redis returns it bare
			got, err = nil, nil
		}
		require.NoError(t, err, "seed %d: %.2000q", seed, r.command)
		if want := toldOf(r, r.reply); want != toldOf(r, got) {
			t.Fatalf("seed %d: %.2000q\nanswers %s\nbut %s in the story", seed, r.command, toldOf(r, got), want)
		}
	}
}

// toldOf is an answer as it can be compared. In which order a hash tells its fields, and how
// it is gone through page by page, is the server's affair.
func toldOf(r recorded, reply any) string {
	verb := strings.ToLower(r.command[0])
	if strings.HasPrefix(verb, "eval") {
		for _, s := range theEngine.scripts {
			if s.sha == r.command[1] || s.source == r.command[1] {
				verb = s.verb
			}
		}
	}
	switch verb {
	case "members", "scan", "hscan", "zscan", "zrandmember", "rows":
		return ""
	case "heartbeat", "hgetall", "hkeys", "hvals", "settled":
		parts := strings.Fields(strings.NewReplacer("[", " ", "]", " ").Replace(fmt.Sprint(reply)))
		slices.Sort(parts)
		return fmt.Sprint(parts)
	}
	return strings.ReplaceAll(fmt.Sprintf("%#v", reply), "[]interface {}", "")
}
