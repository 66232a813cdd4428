package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// redisServer is a Redis: its keys, its clock, and the commands that the product uses. It runs
// the product's own scripts, see lua_test.go. What it answers is held against real servers by
// TestRealRedis.
type redisServer struct {
	now    func() time.Time // its clock
	known  map[string]bool  // scripts, by SHA-1
	values map[string]any   // *hash, *sorted or string
	until  map[string]time.Time

	changes   int      // of any key
	commands  int      // that scripts have run
	process   int      // another one after a failover
	script    string   // the verb of the script that runs
	ran       string   // the verb of the script that ran last, or the command
	keys      []string // of that script
	argv      []string // of that script
	token     string   // of the claim, where that is a claim or a settle
	lacks     string   // a command that is not made up here, and was asked for
	broke     string   // a script that failed, which none may
	isPurge   bool     // of a cancel: it means dead letters only
	isNever   bool     // of a cancel: it ends firings of an older schedule
	isSecond  bool     // that says that an earlier run may have happened
	by        *host    // for whom
	published func(channel, message string)
	effect    func(e effect)
	claims    func(key string) // a claim runs
	starts    func(script string, keys, argv []string)
}

// effect is what a command has done to a message, for the checks.
type effect struct {
	what   string // the end of the key: due, msg, dead, deadmsg, attempts, claims
	key    string
	member string
	isGone bool
	value  string // that it has now; where it is gone, that it had
	score  float64
}

func newRedisServer(now func() time.Time) *redisServer {
	return &redisServer{now: now, known: map[string]bool{}, values: map[string]any{}, until: map[string]time.Time{}}
}

// Replies beside string, int64, nil and []any.
type (
	status     string
	redisError string
)

func (e redisError) Error() string { return string(e) }

var errWrongType = redisError("WRONGTYPE Operation against a key holding the wrong kind of value")

// nowMs is the clock by which keys live.
func (s *redisServer) nowMs() time.Time { return s.now().Truncate(time.Millisecond) }

func (s *redisServer) expire(key string) {
	if until, ok := s.until[key]; ok && s.nowMs().After(until) { // As Redis: at the instant itself it is there.
		s.changes++
		delete(s.values, key)
		delete(s.until, key)
	}
}

func (s *redisServer) hash(key string) *hash {
	h, _ := s.values[key].(*hash)
	return h
}

func (s *redisServer) sorted(key string) *sorted {
	z, _ := s.values[key].(*sorted)
	return z
}

func (s *redisServer) tell(what, key, member string, isGone bool, value string, score float64) {
	if s.effect != nil {
		s.effect(effect{what, key, member, isGone, value, score})
	}
}

func kind(key string) string { return key[strings.LastIndexByte(key, ':')+1:] }

func (s *redisServer) setField(key, name, value string) (isNew bool) {
	s.changes++
	h := s.hash(key)
	if h == nil {
		h = newHash()
		s.values[key] = h
	}
	was, _ := h.get(name)
	isNew = h.set(name, value)
	if name == "epoch" && kind(key) == "meta" {
		s.tell("epoch", key, was, false, value, 0)
	}
	switch kind(key) {
	case "msg", "deadmsg", "attempts":
		s.tell(kind(key), key, name, false, value, 0)
	}
	return isNew
}

func (s *redisServer) delField(key, name string) bool {
	h := s.hash(key)
	if h == nil {
		return false
	}
	was, ok := h.get(name)
	if !ok {
		return false
	}
	s.changes++
	h.del(name)
	if len(h.at) == 0 {
		delete(s.values, key)
		delete(s.until, key)
	}
	switch kind(key) {
	case "msg", "deadmsg", "attempts":
		s.tell(kind(key), key, name, true, was, 0)
	}
	return true
}

func (s *redisServer) addScore(key, member string, score float64) bool {
	s.changes++
	z := s.sorted(key)
	if z == nil {
		z = newSorted()
		s.values[key] = z
	}
	isNew := z.add(member, score)
	if kind(key) == "due" {
		s.tell("due", key, member, false, "", score)
	}
	return isNew
}

func (s *redisServer) delScore(key, member string) bool {
	z := s.sorted(key)
	if z == nil {
		return false
	}
	score, ok := z.scores[member]
	if !ok {
		return false
	}
	s.changes++
	z.del(member)
	if len(z.all) == 0 {
		delete(s.values, key)
	}
	if kind(key) == "due" {
		s.tell("due", key, member, true, "", score)
	}
	return true
}

// field is what a hash has.
func (s *redisServer) field(key, name string) (string, bool) {
	if h := s.hash(key); h != nil {
		return h.get(name)
	}
	return "", false
}

// tellGone tells that all of a key is deleted.
func (s *redisServer) tellGone(key string) {
	s.changes++
	switch what := kind(key); what {
	case "msg", "deadmsg", "attempts":
		if h := s.hash(key); h != nil {
			h.each(func(name, value string) { s.tell(what, key, name, true, value, 0) })
		}
	case "due":
		if z := s.sorted(key); z != nil {
			for _, m := range z.all {
				s.tell(what, key, m.member, true, "", m.score)
			}
		}
	case "holder":
		s.tell(what, key, "", true, "", 0)
	}
}

// do runs one command that is no script.
func (s *redisServer) do(args []string) any {
	if len(args) > 1 {
		s.expire(args[1])
	}
	switch name := strings.ToUpper(args[0]); name {
	case "TIME":
		now := s.now()
		return []any{strconv.FormatInt(now.Unix(), 10), strconv.Itoa(now.Nanosecond() / 1000)}
	case "PING":
		return status("PONG")
	case "PUBLISH", "SPUBLISH":
		if s.published != nil {
			s.published(args[1], args[2])
		}
		return int64(0)
	case "WAIT":
		n, _ := strconv.ParseInt(args[1], 10, 64)
		return n
	case "WAITAOF":
		return []any{int64(1), int64(0)}
	case "GET":
		if v, ok := s.values[args[1]].(string); ok {
			return v
		}
		return nil
	case "SET":
		s.changes++
		s.values[args[1]] = args[2]
		delete(s.until, args[1])
		if len(args) == 5 && strings.EqualFold(args[3], "PX") {
			ms, _ := strconv.ParseInt(args[4], 10, 64)
			s.until[args[1]] = s.nowMs().Add(time.Duration(ms) * time.Millisecond)
		}
		if kind(args[1]) == "holder" {
			s.tell("holder", args[1], "", false, args[2], 0)
		}
		return status("OK")
	case "PTTL":
		if _, ok := s.values[args[1]]; !ok {
			return int64(-2)
		}
		until, ok := s.until[args[1]]
		if !ok {
			return int64(-1)
		}
		return until.Sub(s.nowMs()).Milliseconds()
	case "PEXPIRE":
		if s.values[args[1]] == nil {
			return int64(0)
		}
		s.changes++
		ms, _ := strconv.ParseInt(args[2], 10, 64)
		s.until[args[1]] = s.nowMs().Add(time.Duration(ms) * time.Millisecond)
		return int64(1)
	case "DEL", "UNLINK":
		n := int64(0)
		for _, key := range args[1:] {
			if s.values[key] == nil {
				continue
			}
			n++
			s.tellGone(key)
			delete(s.values, key)
			delete(s.until, key)
		}
		return n
	default:
		if least := fewest[name]; len(args) < least {
			return redisError("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command")
		}
		if name[0] == 'H' {
			return s.doHash(name, args[1], args[2:])
		}
		if name[0] == 'Z' {
			return s.doSorted(name, args[1], args[2:])
		}
		return s.missing(name)
	}
}

// fewest is how many words a command has at least whose members a script unpacks.
var fewest = map[string]int{"HSET": 4, "HMGET": 3, "HDEL": 3, "ZADD": 4, "ZREM": 3, "ZMSCORE": 3}

// missing is the answer to a command that is not made up here.
func (s *redisServer) missing(name string) any {
	s.lacks = name
	return redisError("ERR unknown command '" + name + "'")
}

func (s *redisServer) doHash(name, key string, args []string) any {
	if v := s.values[key]; v != nil && s.hash(key) == nil {
		return errWrongType
	}
	h := s.hash(key)
	if h == nil {
		h = newHash() // It is only read.
	}
	count := func(do func(string) bool) any {
		n := int64(0)
		for _, name := range args {
			if do(name) {
				n++
			}
		}
		return n
	}
	list := func(do func(name, value string) []any) any {
		all := make([]any, 0, 2*len(h.at))
		h.each(func(name, value string) { all = append(all, do(name, value)...) })
		return all
	}
	value := func(name string) any {
		if v, ok := h.get(name); ok {
			return v
		}
		return nil
	}
	switch name {
	case "HGET":
		return value(args[0])
	case "HMGET":
		all := make([]any, len(args))
		for i, name := range args {
			all[i] = value(name)
		}
		return all
	case "HSET", "HMSET":
		n := int64(0)
		for i := 0; i+1 < len(args); i += 2 {
			if s.setField(key, args[i], args[i+1]) {
				n++
			}
		}
		return n
	case "HSETNX":
		if _, ok := h.get(args[0]); ok {
			return int64(0)
		}
		s.setField(key, args[0], args[1])
		return int64(1)
	case "HDEL":
		return count(func(name string) bool { return s.delField(key, name) })
	case "HEXISTS":
		return count(func(name string) bool { _, ok := h.get(name); return ok })
	case "HLEN":
		return int64(len(h.at))
	case "HSTRLEN":
		v, _ := h.get(args[0])
		return int64(len(v))
	case "HKEYS":
		return list(func(name, _ string) []any { return []any{name} })
	case "HVALS":
		return list(func(_, value string) []any { return []any{value} })
	case "HGETALL":
		return list(func(name, value string) []any { return []any{name, value} })
	case "HSCAN": // All at once, as Redis does while it is small.
		prefix := ""
		for i := 1; i+1 < len(args); i += 2 {
			if strings.EqualFold(args[i], "MATCH") {
				prefix = strings.TrimSuffix(args[i+1], "*")
			}
		}
		return []any{"0", list(func(name, value string) []any {
			if !strings.HasPrefix(name, prefix) {
				return nil
			}
			return []any{name, value}
		})}
	case "HINCRBY":
		old, _ := h.get(args[0])
		was, errWas := strconv.ParseInt(cmpOr(old, "0"), 10, 64)
		by, errBy := strconv.ParseInt(args[1], 10, 64)
		if errWas != nil || errBy != nil {
			return redisError("ERR hash value is not an integer")
		}
		s.setField(key, args[0], strconv.FormatInt(was+by, 10))
		if kind(key) == "meta" {
			s.tell("counter", key, args[0], false, "", float64(by))
		}
		return was + by
	}
	return s.missing(name)
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (s *redisServer) doSorted(name, key string, args []string) any {
	if v := s.values[key]; v != nil && s.sorted(key) == nil {
		return errWrongType
	}
	z := s.sorted(key)
	if z == nil {
		z = newSorted() // It is only read.
	}
	list := func(part []scored, with bool) any {
		all := make([]any, 0, 2*len(part))
		for _, m := range part {
			if all = append(all, m.member); with {
				all = append(all, printed(m.score))
			}
		}
		return all
	}
	has := func(from int, word string) int {
		for i := from; i < len(args); i++ {
			if strings.EqualFold(args[i], word) {
				return i
			}
		}
		return -1
	}
	limit := func(part []scored, from int) []scored {
		at := has(from, "LIMIT")
		if at < 0 {
			return part
		}
		first, _ := strconv.Atoi(args[at+1])
		n, _ := strconv.Atoi(args[at+2])
		part = part[min(first, len(part)):]
		if n >= 0 {
			part = part[:min(n, len(part))]
		}
		return part
	}
	remove := func(part []scored) any {
		for _, m := range slices.Clone(part) {
			s.delScore(key, m.member)
		}
		return int64(len(part))
	}
	switch name {
	case "ZADD":
		return s.zadd(key, z, args)
	case "ZREM":
		n := int64(0)
		for _, member := range args {
			if s.delScore(key, member) {
				n++
			}
		}
		return n
	case "ZCARD":
		return int64(len(z.all))
	case "ZSCORE":
		if score, ok := z.scores[args[0]]; ok {
			return printed(score)
		}
		return nil
	case "ZRANK":
		score, ok := z.scores[args[0]]
		if !ok {
			return nil
		}
		at, _ := slices.BinarySearchFunc(z.all, scored{score, args[0]}, compareScored)
		return int64(at)
	case "ZCOUNT":
		from, to := z.between(args[0], args[1])
		return int64(to - from)
	case "ZRANGE":
		start, _ := strconv.ParseFloat(args[0], 64)
		stop, _ := strconv.ParseFloat(args[1], 64)
		all := z.all
		if has(2, "REV") > 0 {
			all = slices.Clone(all)
			slices.Reverse(all)
		}
		from, to := z.ranks(int(start), int(stop))
		return list(all[from:to], has(2, "WITHSCORES") > 0)
	case "ZRANGEBYSCORE":
		from, to := z.between(args[0], args[1])
		return list(limit(z.all[from:to], 2), has(2, "WITHSCORES") > 0)
	case "ZRANGEBYLEX":
		inside := func(text string, isLow bool) func(string) bool {
			switch bound := text[1:]; text[0] {
			case '[':
				return func(m string) bool { return isLow && m >= bound || !isLow && m <= bound }
			case '(':
				return func(m string) bool { return isLow && m > bound || !isLow && m < bound }
			case '-':
				return func(string) bool { return isLow }
			default:
				return func(string) bool { return !isLow }
			}
		}
		low, high := inside(args[0], true), inside(args[1], false)
		var part []scored
		for _, m := range z.all {
			if low(m.member) && high(m.member) {
				part = append(part, m)
			}
		}
		return list(limit(part, 2), false)
	case "ZREMRANGEBYRANK":
		start, _ := strconv.ParseFloat(args[0], 64)
		stop, _ := strconv.ParseFloat(args[1], 64)
		from, to := z.ranks(int(start), int(stop))
		return remove(z.all[from:to])
	case "ZREMRANGEBYSCORE":
		from, to := z.between(args[0], args[1])
		return remove(z.all[from:to])
	case "ZRANDMEMBER": // The first ones.
		n, _ := strconv.Atoi(args[0])
		return list(z.all[:min(max(n, 0), len(z.all))], false)
	case "ZSCAN":
		return []any{"0", list(z.all, true)}
	}
	return s.missing(name)
}

func (s *redisServer) zadd(key string, z *sorted, args []string) any {
	onlyNew, onlyOld, onlyGreater := false, false, false
	for ; ; args = args[1:] {
		switch strings.ToUpper(args[0]) {
		case "NX":
			onlyNew = true
			continue
		case "XX":
			onlyOld = true
			continue
		case "GT":
			onlyGreater = true
			continue
		}
		break
	}
	for i := 0; i+1 < len(args); i += 2 {
		if _, err := strconv.ParseFloat(args[i], 64); err != nil {
			return redisError("ERR value is not a valid float")
		}
	}
	n := int64(0)
	for i := 0; i+1 < len(args); i += 2 {
		score, _ := strconv.ParseFloat(args[i], 64)
		old, known := z.scores[args[i+1]]
		if known && (onlyNew || onlyGreater && score <= old) || !known && onlyOld {
			continue
		}
		if s.addScore(key, args[i+1], score) {
			n++
		}
		if fresh := s.sorted(key); fresh != nil {
			z = fresh
		}
	}
	return n
}

// copyOf is what the keys are that the shard of that tag has; "" is all of them.
func (s *redisServer) snapshot(tag string) *redisServer {
	copied := newRedisServer(s.now)
	for key, value := range s.values {
		if !strings.Contains(key, tag) {
			continue
		}
		switch v := value.(type) {
		case *hash:
			copied.values[key] = v.clone()
		case *sorted:
			copied.values[key] = v.clone()
		default:
			copied.values[key] = v
		}
		if until, ok := s.until[key]; ok {
			copied.until[key] = until
		}
	}
	return copied
}

// restore puts the keys of that tag back to what they were.
func (s *redisServer) restore(tag string, was *redisServer) {
	s.changes++
	for key := range s.values {
		if strings.Contains(key, tag) {
			delete(s.values, key)
			delete(s.until, key)
		}
	}
	s.process++
	maps.Copy(s.values, was.snapshot("").values)
	maps.Copy(s.until, was.until)
}

// wipe is FLUSHALL.
func (s *redisServer) wipe() {
	s.changes++
	clear(s.values)
	clear(s.until)
}

// dump is a shard as the product's own check of I6 reads it.
func (s *redisServer) dump(queue string, shard int) *storetest.Shard {
	scores := func(name string) map[string]int64 {
		all := map[string]int64{}
		if z := s.sorted(storetest.Key(queue, shard, name)); z != nil {
			for _, m := range z.all {
				all[m.member] = int64(m.score)
			}
		}
		return all
	}
	fields := func(name string) map[string]string {
		all := map[string]string{}
		if h := s.hash(storetest.Key(queue, shard, name)); h != nil {
			h.each(func(name, value string) { all[name] = value })
		}
		return all
	}
	return &storetest.Shard{
		Due: scores("due"), Deadlines: scores("deadlines"), GoneTTL: scores("gonettl"), Dead: scores("dead"), Tags: scores("tags"),
		Msg: fields("msg"), Claims: fields("claims"), Attempts: fields("attempts"), Gone: fields("gone"), DeadMsg: fields("deadmsg"),
		Meta: fields("meta"), Settled: fields("settled"), Routes: fields("routes"), Ends: fields("ends"),
	}
}

// appendReply writes a reply as RESP 2.
func appendReply(b []byte, reply any) []byte {
	switch v := reply.(type) {
	case nil:
		return append(b, "$-1\r\n"...)
	case int64:
		return append(strconv.AppendInt(append(b, ':'), v, 10), "\r\n"...)
	case string:
		b = append(strconv.AppendInt(append(b, '$'), int64(len(v)), 10), "\r\n"...)
		return append(append(b, v...), "\r\n"...)
	case status:
		return append(append(append(b, '+'), v...), "\r\n"...)
	case redisError:
		return append(append(append(b, '-'), v...), "\r\n"...)
	case []any:
		b = append(strconv.AppendInt(append(b, '*'), int64(len(v)), 10), "\r\n"...)
		for _, item := range v {
			b = appendReply(b, item)
		}
		return b
	}
	panic(fmt.Sprintf("no reply: %T", reply))
}

// cutCommand takes the first whole command off what a client has sent.
func cutCommand(text string) (command []string, rest string) {
	line := func(text string, mark byte) (n int, rest string, ok bool) {
		end := strings.Index(text[:min(len(text), 32)], "\r\n")
		if end < 0 || text[0] != mark {
			return 0, text, false
		}
		n, err := strconv.Atoi(text[1:end])
		return n, text[end+2:], err == nil
	}
	n, at, ok := line(text, '*')
	if !ok {
		return nil, text
	}
	command = make([]string, n)
	for i := range command {
		var length int
		if length, at, ok = line(at, '$'); !ok || len(at) < length+2 {
			return nil, text
		}
		command[i], at = at[:length], at[length+2:]
	}
	return command, at
}
