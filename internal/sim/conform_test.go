package sim

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

var (
	operations = flag.Int("operations", 3000, "how many verbs of each set TestConformance runs on each server")
	conformed  = flag.Uint64("conform", 1, "the seed of TestConformance's first round")
)

// TestConformance runs verbs by chance, each set on the Redis of this package and on a real one with a clock of ours, and
// compares each answer with the oracle's, and the keys every now and then. It checks I4, I5 and I6, and how many commands
// each script runs.
func TestConformance(t *testing.T) {
	servers := map[string]func(t *testing.T) server{
		"in process": func(*testing.T) server { return &simulated{} },
		"server":     startClocked,
	}
	for _, kind := range slices.Sorted(maps.Keys(servers)) {
		t.Run(kind, func(t *testing.T) {
			s := servers[kind](t)
			for _, set := range sets {
				t.Run(set, func(t *testing.T) { conform(t, s, set) })
			}
		})
	}
}

// TestPutMeetsItsOwnMessage: a call has both rows of an identity, of which a reschedule came first.
func TestPutMeetsItsOwnMessage(t *testing.T) {
	const nowMs = 1_790_000_000_000
	older, newer := "~r00000000000001", "~r00000000000002"
	h := head{"1-x", [2]int64{nowMs, nowMs + 1000}}
	_, diff := shortened(t, &simulated{}, placed("q"), []step{
		{us: nowMs * 1000, verb: &fence{h.Epoch, "1|", true}},
		{us: nowMs * 1000, verb: &reschedule{
			head: h, Run: 1, TombMs: 60_000, Last: true, BytesMax: 1000,
			List: []move{{Token: "r000000000000003", ID: "1", When: when{Ms: nowMs + 5}, Row: newer, Target: older}},
		}},
		{us: nowMs * 1000, verb: &put{head: h, BytesMax: 1000, List: []row{
			{note: note{ID: "1", Token: newer, Topic: "t"}, DueMs: nowMs + 5, Mark: "0"},
			{note: note{ID: "1", Token: older, Topic: "t"}, DueMs: nowMs + 9, Mark: "0"},
		}}},
	}, true)
	require.Empty(t, diff)
}

// server is a Redis with a clock that is set.
type server interface {
	// reset removes all keys.
	reset(t *testing.T)
	// set sets its clock.
	set(t *testing.T, us int64)
	// send runs commands, and returns the answer of each.
	send(t *testing.T, commands [][]string) []any
	// count is how many commands scripts and clients have run by now.
	count(t *testing.T) int
	// hints are those of the last commands, by command; nil where it does not tell.
	hints() []string
}

const (
	lanes      = 48  // queues of a round, so that a trip to the server has many verbs
	ticks      = 120 // of the clock in a round
	mostOfTick = 4   // verbs of a queue in a tick
	lookEvery  = 24  // ticks
	looks      = 24  // commands of a look
)

func conform(t *testing.T, s server, set string) {
	began, sum := time.Now(), 0
	by := map[string]int{}
	for seed := *conformed; sum < *operations; seed++ {
		for _, l := range round(t, s, set, seed, *operations-sum) {
			sum += len(l.story)
			for _, step := range l.story {
				by[name(step.verb)]++
			}
		}
		if t.Failed() {
			return
		}
	}
	took := time.Since(began)
	t.Logf("%d verbs of %s in %.1f s, no difference: %v", sum, set, took.Seconds(), by)
}

// round runs some queues side by side, up to that many verbs.
func round(t *testing.T, s server, set string, seed uint64, verbsMax int) (all []*lane) {
	s.reset(t)
	rng := rand.New(rand.NewPCG(seed, uint64(len(set))))
	for n := range lanes {
		all = append(all, newLane(rand.New(rand.NewPCG(rng.Uint64(), 0)), set, placed(fmt.Sprintf("%s%d", set, n))))
	}
	us, before, most, verbs := int64(1_790_000_000_000_000), s.count(t), 0, 0
	for tick := range ticks {
		us += drift(rng)
		s.set(t, us)
		var commands [][]string
		var steps []step
		var whose []*lane
		for _, l := range all {
			touched := l.home.touch()
			commands = append(commands, touched...)
			steps, whose = append(steps, make([]step, len(touched))...), append(whose, make([]*lane, len(touched))...)
			for range 1 + rng.IntN(mostOfTick) {
				step := l.next(us)
				commands, steps, whose = append(commands, l.home.command(step.verb)), append(steps, step), append(whose, l)
			}
		}
		most += len(commands)
		replies := s.send(t, commands)
		for i, l := range whose {
			if l == nil {
				continue
			}
			most += steps[i].verb.most()
			verbs++
			if diff := steps[i].differs(replies[i], s.hints(), i); diff != "" {
				l.report(t, s, set, seed, diff, verbs)
				return all
			}
		}
		isLast := tick == ticks-1 || verbs >= verbsMax
		if tick%lookEvery != 0 && !isLast {
			continue
		}
		for _, l := range all {
			most += looks
			l.o.us = us
			if diff := l.home.look(t, s, l.o); diff != "" {
				l.report(t, s, set, seed, diff, verbs)
				return all
			}
		}
		if isLast {
			break
		}
	}
	if ran := s.count(t) - before; ran > most {
		t.Errorf("set %s, seed %d: scripts and clients have run %d commands, and may run %d", set, seed, ran, most)
	}
	return all
}

// drift is how the clock goes on: mostly by little, and sometimes it is set.
func drift(rng *rand.Rand) int64 {
	ms := func(n int) int64 { return int64(1000 * rng.IntN(n)) }
	switch at := rng.IntN(100); {
	case at < 2:
		return -ms(2000)
	case at < 3:
		return -61_000_000
	case at < 6:
		return 61_000_000
	case at < 12:
		return ms(2000)
	case at < 30:
		return ms(4) // The same part of a millisecond again.
	}
	return rng.Int64N(5000)
}

func placed(queue string) home {
	q := keys.Queue{Prefix: "delay", Name: queue}
	return home{q.Shard(0), q, q.Once("x"), q.Turns("x"), q.Shard(0).Meta + ":declared"}
}

// touch are commands by which Redis looks whether the keys with an end are at it. Else it depends on when it looks.
func (k home) touch() [][]string {
	return [][]string{{"GET", k.Holder}, {"GET", k.once}, {"HGET", k.turns, "record"}}
}

func (k home) command(v verb) []string {
	script, names, args := v.run(k)
	source := script.Command(nil, true, nil, nil).Args()[1].(string) //nolint:forcetypeassert,staticcheck // it is one, and nothing is sent
	command := []string{"EVALSHA", compiledSHA(source), strconv.Itoa(len(names))}
	command = append(command, names...)
	for _, arg := range args {
		command = append(command, fmt.Sprint(arg))
	}
	return command
}

// compiledSHA is the name of a script, which is broken where command breaks says so.
func compiledSHA(source string) string {
	sha, ok := shas[source]
	if !ok {
		name, err := theEngine.compile(source)
		if err != nil {
			panic(err)
		}
		sha = name
		shas[source] = sha
	}
	return sha
}

var shas = map[string]string{}

// differs says how an answer is another one than was expected.
func (s step) differs(reply any, hints []string, i int) string {
	want, got := compared(s.verb, s.want), compared(s.verb, reply)
	if !reflect.DeepEqual(want, got) {
		return fmt.Sprintf("%s answers %q, expected %q", name(s.verb), got, want)
	}
	if hints != nil && hints[i] != s.hint {
		return fmt.Sprintf("%s hints %q, expected %q", name(s.verb), hints[i], s.hint)
	}
	return ""
}

// compared is an answer without what is Redis' affair: in which order a hash is told, and how a score is printed.
func compared(v verb, reply any) any {
	list, ok := reply.([]any)
	if !ok {
		return reply
	}
	list = slices.Clone(list)
	switch v.(type) {
	case *stats:
		if len(list) > 8 {
			list[8] = sortedPairs(list[8])
		}
	case *members:
		if len(list) == 6 {
			list[2], list[5] = "", ordered(list[5], 3) // Which server it was.
		}
	case *rows:
		if len(list) == 4 {
			list[2] = ordered(list[2], 2)
		}
	case *scan:
		if len(list) == 3 {
			list[2] = ordered(list[2], 1)
		}
	case *heartbeat:
		if len(list) == 2 {
			scores, _ := list[0].([]any)
			for i := 1; i < len(scores); i += 2 {
				if f, err := strconv.ParseFloat(fmt.Sprint(scores[i]), 64); err == nil {
					scores[i] = strconv.FormatFloat(f, 'f', 0, 64)
				}
			}
			list[1] = sortedPairs(list[1])
		}
	}
	return list
}

// ordered is a list of that many values an entry, which come in any order.
func ordered(reply any, size int) any {
	list, _ := reply.([]any)
	var texts []string
	for entry := range slices.Chunk(list, size) {
		texts = append(texts, fmt.Sprintf("%q", entry))
	}
	slices.Sort(texts)
	return texts
}

func sortedPairs(reply any) any {
	list, ok := reply.([]any)
	if !ok {
		return reply
	}
	m := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return flat(m)
}

// look compares the keys with those that there must be.
func (k home) look(t *testing.T, s server, o *oracle) string {
	ended, ends := k.History()
	hashes := map[string]string{
		"msg": k.Msg, "attempts": k.Attempts, "gone": k.Gone, "claims": k.Claims, "deadmsg": k.DeadMsg, "settled": k.Settled, "routes": k.Routes, "meta": k.Meta,
		"ends": ends, "layout": k.queue.Layout(), "paused": k.queue.Paused(), "jobs": k.queue.Jobs(), "rates": k.queue.Rates(),
		"recurring": k.queue.Recurring(), "turns": k.turns, "declared": k.declared,
	}
	sets := map[string]string{
		"due": k.Due, "gonettl": k.GoneTTL, "deadlines": k.Deadlines, "dead": k.Dead, "tags": k.Tags, "ended": ended, "instances": k.queue.Instances(),
	}
	texts := map[string]string{"holder": k.Holder, "once": k.once}
	commands, names := make([][]string, 0, looks), make([]string, 0, looks)
	for name, key := range hashes {
		commands, names = append(commands, []string{"HGETALL", key}), append(names, name)
	}
	for name, key := range sets {
		commands, names = append(commands, []string{"ZRANGE", key, "0", "-1", "WITHSCORES"}), append(names, name)
	}
	for name, key := range texts {
		commands, names = append(commands, []string{"GET", key}), append(names, name)
	}
	got := map[string]map[string]string{}
	for i, reply := range s.send(t, commands) {
		entries := map[string]string{}
		switch v := reply.(type) {
		case string:
			entries[""] = v
		case []any:
			for n := 0; n+1 < len(v); n += 2 {
				value := fmt.Sprint(v[n+1])
				if sets[names[i]] != "" {
					score, _ := strconv.ParseFloat(value, 64)
					value = strconv.FormatFloat(score, 'f', -1, 64)
				}
				entries[fmt.Sprint(v[n])] = value
			}
		}
		if len(entries) > 0 {
			got[names[i]] = entries
		}
	}
	want := o.keys()
	for _, name := range names {
		for _, entry := range slices.Sorted(maps.Keys(merged(want[name], got[name]))) {
			is, ok := got[name][entry]
			should, must := want[name][entry]
			if is != should || ok != must {
				return fmt.Sprintf("%s has %q: %q (%t), expected %q (%t)", name, entry, is, ok, should, must)
			}
		}
	}
	return ""
}

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(b)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, a)
	return all
}

// report tells of a difference by as few verbs as show it.
func (l *lane) report(t *testing.T, s server, set string, seed uint64, diff string, sum int) {
	t.Helper()
	if os.Getenv("SIM_FAULT") != "" { // It was to be found, and is.
		t.Errorf("set %s, seed %d: %s, after %d verbs", set, seed, diff, sum)
		return
	}
	until, looks := time.Now().Add(time.Minute), false
	story, found := shortened(t, s, l.home, l.story, looks)
	if found == "" { // No answer is another one, so a key is.
		looks = true
		if story, found = shortened(t, s, l.home, l.story, looks); found == "" {
			t.Errorf("set %s, seed %d: %s, which does not happen again with that queue alone", set, seed, diff)
			return
		}
	}
	for size := len(story) / 2; size > 0 && time.Now().Before(until); {
		isShorter := false
		for from := 0; from < len(story) && time.Now().Before(until); {
			rest, other := shortened(t, s, l.home, slices.Concat(story[:from], story[min(from+size, len(story)):]), looks)
			if other != "" {
				story, found, isShorter = rest, other, true
			} else {
				from += size
			}
		}
		if size = min(size, len(story)); !isShorter || size > 1 {
			size /= 2
		}
	}
	var b strings.Builder
	for _, step := range story {
		text := fmt.Sprintf("%+v", step.verb)
		for was := ""; was != text; {
			was, text = text, unset.ReplaceAllString(text, "$2")
		}
		fmt.Fprintf(&b, "\n  at %d µs: %s %.1000s", step.us, name(step.verb), text)
	}
	t.Errorf("set %s, seed %d: %s, after %d verbs, %d of that queue; by these:%s", set, seed, found, sum, len(l.story), b.String())
}

// unset is a field that has no value.
var unset = regexp.MustCompile(` ?[A-Za-z]+:(0|false|\[\]|)( |})`)

// shortened tells a story alone, up to the first difference.
func shortened(t *testing.T, s server, at home, story []step, looks bool) (upTo []step, diff string) {
	s.reset(t)
	o := newOracle()
	for n, was := range story {
		s.set(t, was.us)
		step := o.expect(was.us, was.verb)
		touched := at.touch()
		replies := s.send(t, append(touched, at.command(was.verb)))
		if diff = step.differs(replies[len(touched)], s.hints(), len(touched)); diff == "" && looks {
			diff = at.look(t, s, o)
		}
		if diff != "" {
			return story[:n+1], diff
		}
	}
	return story, ""
}

// simulated is the Redis of this package.
type simulated struct {
	redis  *redisServer
	us     int64
	ran    int
	hinted []string
}

func (s *simulated) reset(*testing.T) {
	s.redis = newRedisServer(func() time.Time { return time.UnixMicro(s.us) })
	for _, sha := range shas {
		s.redis.known[sha] = true
	}
}

func (s *simulated) set(_ *testing.T, us int64) { s.us = us }
func (s *simulated) count(*testing.T) int       { return s.redis.commands + s.ran }
func (s *simulated) hints() []string            { return s.hinted }
func (s *simulated) send(_ *testing.T, commands [][]string) []any {
	replies := make([]any, len(commands))
	s.hinted = make([]string, len(commands))
	for i, command := range commands {
		s.ran++
		s.redis.published = func(_, text string) { s.hinted[i] += text }
		if command[0] == "EVALSHA" {
			s.redis.known[command[1]] = true
		}
		replies[i] = s.redis.run(command)
	}
	return replies
}

// clocked is a real server whose clock stands, and is set.
type clocked struct {
	rdb    *redis.Client
	clock  *testenv.Clock
	loaded map[string]bool
}

func startClocked(t *testing.T) server {
	private, clock := testenv.StartRedisWithClock(t, debuggable(t)...)
	s := &clocked{clock: clock, loaded: map[string]bool{}}
	options, err := redis.ParseURL(private.URL())
	require.NoError(t, err)
	options.Protocol, options.PoolSize, options.ReadTimeout = 2, 1, time.Minute
	s.rdb = redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, s.rdb.Close()) })
	// From Redis 8.0 on, the server removes a key in the millisecond in which a command still finds it. By itself it shall not.
	require.NoError(t, s.rdb.Do(t.Context(), "DEBUG", "SET-ACTIVE-EXPIRE", "0").Err())
	info := s.rdb.InfoMap(t.Context(), "server").Val()["Server"]
	t.Logf("Redis %s, Valkey %s", info["redis_version"], info["valkey_version"])
	return s
}

// debuggable is what makes the server take DEBUG, which Redis 6 does anyway.
func debuggable(t *testing.T) []string {
	version, err := service.RedisVersion(t.Context())
	require.NoError(t, err)
	if strings.Contains(version, " v=6.") {
		return nil
	}
	return []string{"--enable-debug-command", "local"}
}

func (s *clocked) reset(t *testing.T) { require.NoError(t, s.rdb.FlushAll(t.Context()).Err()) }

func (s *clocked) set(_ *testing.T, us int64) { s.clock.Stop(time.UnixMicro(us)) }

func (s *clocked) hints() []string { return nil }

func (s *clocked) count(t *testing.T) (sum int) {
	for name, stats := range s.rdb.InfoMap(t.Context(), "commandstats").Val()["Commandstats"] {
		calls, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
		n, err := strconv.Atoi(calls)
		require.NoError(t, err)
		if !strings.HasPrefix(name, "cmdstat_info") && !strings.HasPrefix(name, "cmdstat_eval") && !strings.HasPrefix(name, "cmdstat_script") {
			sum += n
		}
	}
	return sum
}

func (s *clocked) send(t *testing.T, commands [][]string) []any {
	pipe := s.rdb.Pipeline()
	answers := make([]*redis.Cmd, len(commands))
	for i, command := range commands {
		if command[0] == "EVALSHA" && !s.loaded[command[1]] {
			require.NoError(t, s.rdb.ScriptLoad(t.Context(), theEngine.scripts[command[1]].source).Err())
			s.loaded[command[1]] = true
		}
		args := make([]any, len(command))
		for n, arg := range command {
			args[n] = arg
		}
		answers[i] = pipe.Do(t.Context(), args...)
	}
	_, _ = pipe.Exec(t.Context()) // Each has its own error.
	replies := make([]any, len(commands))
	for i, answer := range answers {
		reply, failed := answer.Result()
		if failed == redis.Nil { //nolint:errorlint // go-redis returns it bare
			reply, failed = nil, nil
		}
		if failed != nil {
			reply = redisError(failed.Error())
		}
		replies[i] = reply
	}
	return replies
}
