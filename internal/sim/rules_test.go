package sim

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// A rule is what a script must keep to, by what Redis had before it ran. It is told by the script's
// header and not by its code: what comes of a breach mostly shows much later, or elsewhere.

// starts looks at what Redis has before a script runs, and leaves in [model.rule] what its
// reply must keep to.
func (m *model) starts(script string, keys, argv []string) {
	m.rule = nil
	m.traces.starts(script, keys, argv)
	switch script {
	case "schedule", "replace", "cancel", "reschedule":
		m.rule = both(m.fences(script, keys, argv), m.spanned(script, keys, argv))
		if script == "schedule" && argv[2] != "" {
			m.rule = both(m.rule, m.knowsItsOwn(keys, argv))
		}
		if script == "cancel" {
			m.rule = both(m.rule, m.meansOneLife(keys, argv))
		}
	case "put", "renew":
		m.rule = both(m.fences(script, keys, argv), m.spanned(script, keys, argv))
		if script == "put" {
			m.rule = both(m.rule, m.marksAgain(keys, argv))
		}
	case "forget":
		m.rule = m.rowsKnow(keys, argv)
	case "claim":
		m.rule = m.holds(keys, argv)
	case "reclaim":
		owner, _ := m.lease(keys[4])
		m.rule = func(reply []any) {
			if number(reply[0]) > 0 && owner != argv[0] {
				m.w.fail("§5: %s reclaims of %s, which %q holds", argv[0], keys[4], owner)
			}
		}
	case "drop":
		n := 0
		for _, key := range []string{keys[1], keys[3], keys[4]} {
			if h := m.w.redis.server.hash(key); h != nil {
				n += len(h.at)
			}
		}
		m.rule = func(reply []any) {
			if number(reply[0]) == 1 && n > 0 {
				m.w.fail("I1: %s is dropped with %d messages, claims and entries", keys[0], n)
			}
		}
	case "change":
		m.rule = m.changesItsLayout(keys[0], argv)
	case "drained":
		redriven, _ := m.w.redis.server.field(keys[0], "redriven")
		replaced, _ := m.w.redis.server.field(keys[0], "replaced")
		m.rule = func(reply []any) {
			if number(reply[1]) == 1 && redriven+" "+replaced != argv[1] {
				m.w.fail("§4: %s is noted as drained, and something came back meanwhile", keys[0])
			}
		}
	case "oncebegin":
		s := m.w.redis.server
		s.expire(keys[0])
		record, _ := s.values[keys[0]].(string)
		m.rule = func(reply []any) {
			if strings.HasPrefix(record, "a ") && number(reply[0]) < 3 {
				m.w.fail("I10: a request that was answered begins again")
			}
		}
	case "jobkeep":
		m.rule = m.keepsItsJob(keys[0], argv)
	}
}

func both(a, b func([]any)) func([]any) {
	return func(reply []any) {
		a(reply)
		b(reply)
	}
}

func number(v any) int64 {
	n, _ := v.(int64)
	return n
}

// metaOf is which key of a script the shard's meta is.
var metaOf = map[string]int{"schedule": 6, "replace": 7, "cancel": 7, "reschedule": 7, "put": 7, "renew": 6}

// fences: whoever knows another epoch than the shard has is to load the layout.
func (m *model) fences(script string, keys, argv []string) func([]any) {
	epoch, _ := m.w.redis.server.field(keys[metaOf[script]], "epoch")
	return func(reply []any) {
		if number(reply[0]) == 0 && epoch != argv[0] {
			m.w.fail("§4: a %s of the epoch %q takes effect in %s, which has %q", script, argv[0], keys[0], epoch)
		}
	}
}

// marksAgain: what is put back is marked, where its row or the loss says that a copy may be out.
func (m *model) marksAgain(keys, argv []string) func([]any) {
	now, s := m.w.redis.clock().UnixMilli(), m.w.redis.server
	born, _ := s.field(keys[7], "born")
	return func(reply []any) {
		for i := 5; i+4 < len(argv) && number(reply[0]) == 0; i += 5 {
			due, _ := strconv.ParseInt(argv[i+1], 10, 64)
			bornMs, _ := strconv.ParseInt(born, 10, 64)
			made, err := strconv.ParseInt(argv[i+2], 10, 64)
			isOlder := argv[i+2] == "due" || err == nil && made > 1 && made < bornMs
			if number(reply[2+2*((i-5)/5)]) != 1 || argv[i+2] != "1" && (!isOlder || due > now) {
				continue
			}
			counts, _ := s.field(keys[2], argv[i])
			if fields := strings.Fields(counts); len(fields) < 3 || fields[2] == "0" {
				m.w.fail("I11: %q is put back, a copy of it may be out, and it is not marked", argv[i])
			}
		}
	}
}

// spanned: a run takes effect within its span of Redis' clock, and a further one while the traces of
// the first are there.
func (m *model) spanned(script string, keys, argv []string) func([]any) {
	span, now := strings.Fields(argv[1]), m.w.redis.clock().UnixMilli()
	return func(reply []any) {
		if number(reply[0]) != 0 {
			return
		}
		from, _ := strconv.ParseInt(span[0], 10, 64)
		to, _ := strconv.ParseInt(span[1], 10, 64)
		if now < from || now > to {
			m.w.fail("§6: a %s takes effect at %d, outside of %d to %d", script, now, from, to)
		}
		if by := m.w.redis.server.by; by == nil || !strings.HasPrefix(by.name, "producer") {
			return // The calls of a job name a life of the message, and are known for longer.
		}
		for i, token := range callsOf(script, keys, argv) {
			call := keys[0] + token
			if first, ok := m.ranFirst[call]; !ok {
				if len(reply) == 3 || slices.Contains([]int64{1, 7, 9}, number(reply[2+2*i])) { // It was done.
					m.ranFirst[call] = now
				}
			} else if now-first > store.Tombstone.Milliseconds() && !m.clockWasSetTwice(m.w.now()-2*time.Minute) {
				m.w.fail("§6: a further run of the %s %s takes effect %d ms after the first, whose traces may be gone", script, token, now-first)
			}
		}
	}
}

// callsOf are the tokens of the calls of a run, but of those that have a name, which are
// remembered for longer.
func callsOf(script string, keys, argv []string) (tokens []string) {
	switch script {
	case "schedule":
		for i := 4 + 2*(len(argv)-4)/3; i < len(argv) && len(keys) <= 10; i++ {
			tokens = append(tokens, argv[i][:16])
		}
	case "cancel":
		keptMs, _ := strconv.ParseInt(argv[3], 10, 64)
		for i := 9; i+3 < len(argv) && keptMs <= store.Tombstone.Milliseconds(); i += 4 {
			tokens = append(tokens, argv[i])
		}
	case "reschedule":
		for i := 8; i+5 < len(argv); i += 6 {
			tokens = append(tokens, argv[i])
		}
	}
	return tokens
}

// knowsItsOwn: a further run of a schedule that finds its message says that it has created it.
func (m *model) knowsItsOwn(keys, argv []string) func([]any) {
	n := (len(argv) - 4) / 3
	isOwn := make([]bool, n)
	for i := range isOwn {
		stored, _ := m.w.redis.server.field(keys[1], argv[4+2*i+1])
		isOwn[i] = len(keys) <= 10 && len(stored) > 30 && stored[14:30] == argv[4+2*n+i][:16]
	}
	return func(reply []any) {
		for i := 0; i < n && number(reply[0]) == 0 && len(reply) > 3; i++ {
			if code := number(reply[2+2*i]); isOwn[i] && code > 1 {
				m.w.fail("I10: a further run of a schedule says %d of its own %q", code, argv[4+2*i+1])
			}
		}
	}
}

// meansOneLife: a cancel that means one life of a message touches no other.
func (m *model) meansOneLife(keys, argv []string) func([]any) {
	var others []int
	for i := 9; i+3 < len(argv); i += 4 {
		_, isTold := m.w.redis.server.field(keys[5], argv[i]) // By an earlier run.
		if stored, ok := m.w.redis.server.field(keys[1], argv[i+1]); ok && !isTold && argv[i+3] != "" && len(stored) > 30 && stored[14:30] != argv[i+3] {
			others = append(others, (i-9)/2+2)
		}
	}
	return func(reply []any) {
		for _, at := range others {
			if number(reply[0]) == 0 && number(reply[at]) != 8 && number(reply[at]) != 0 {
				m.w.fail("jobs: a cancel of one life says %d of another", number(reply[at]))
			}
		}
	}
}

// rowsKnow: what the ledger tells of an end is forgotten once no row says that its message lives, and a
// tombstone is there then.
func (m *model) rowsKnow(keys, argv []string) func([]any) {
	var ended []string
	for i := 1; i+1 < len(argv); i += 2 {
		if entry, _ := m.w.redis.server.field(keys[0], argv[i]); entry == argv[i+1] && entry[0] != 'd' {
			ended = append(ended, argv[i])
		}
	}
	return func([]any) {
		for _, token := range ended {
			if _, isGone := m.w.redis.server.field(keys[1], token); !isGone {
				m.w.fail("I3: %s is forgotten, and no tombstone keeps a late writer out", token)
			}
			for _, number := range sortedNumbers(m.rows) {
				if r := m.rows[number]; r.token == token && (r.live || r.op == 2 && r.status == 0) {
					m.w.fail("I12: an end of row %d is forgotten, and its status is %d", number, r.status)
				}
			}
		}
	}
}

// lease is who holds a shard, and the number of its last claim.
func (m *model) lease(key string) (owner string, last int) {
	s := m.w.redis.server
	s.expire(key)
	text, _ := s.values[key].(string)
	if parts := strings.Split(text, "|"); len(parts) == 3 {
		last, _ = strconv.Atoi(parts[1])
		return parts[0], last
	}
	return "", 0
}

// holds: who claims holds the shard, by a number that it has not used before, and is told of its
// claims that it does not know.
func (m *model) holds(keys, argv []string) func([]any) {
	s := m.w.redis.server
	owner, last := m.lease(keys[7])
	text, _ := s.values[keys[7]].(string)
	claim, _ := strconv.Atoi(argv[1])
	token := argv[0] + "|" + argv[1]
	_, isAgain := s.field(keys[2], token)
	live, _ := strconv.Atoi(argv[9])
	known := argv[10 : 10+live]
	strays := 0
	if z := s.sorted(keys[3]); z != nil {
		for _, c := range z.all {
			if strings.HasPrefix(c.member, argv[0]+"|") && c.member != token && !slices.Contains(known, c.member) {
				strays++
			}
		}
	}
	return func(reply []any) {
		switch {
		case number(reply[0]) != 0:
		case owner != "" && owner != argv[0] && text != argv[7]:
			m.w.fail("§5: %s claims of %s, which %s holds", argv[0], keys[7], text)
		case owner == argv[0] && claim <= last && !isAgain:
			m.w.fail("§5: %s claims of %s by the number %d after %d", argv[0], keys[7], claim, last)
		case len(list(reply[9])) != strays:
			m.w.fail("I7: %s has %d claims in %s that it does not know, and is told of %d", argv[0], strays, keys[3], len(list(reply[9])))
		case strays > 0 && !m.was(m.w.now()-2*time.Minute, strayed...):
			m.w.fail("I7: %s has left %d claims in %s, and nothing was the matter", argv[0], strays, keys[3])
		}
	}
}

// strayed are what may have an instance not know a claim of its own.
var strayed = []string{"restore", "wipe", "lost shard", "redis down", "redis flaky", "slow redis", "clock", "stall", "takeover", "crash", "drain", "two holders", "reshard"}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// changesItsLayout: a step of a change changes the layout that it has read, and no other.
func (m *model) changesItsLayout(key string, argv []string) func([]any) {
	read := func() (was [3]string) {
		for i, name := range []string{"epoch", "next", "earlier"} {
			was[i], _ = m.w.redis.server.field(key, name)
		}
		return was
	}
	was := read()
	return func([]any) {
		if is := read(); was != [3]string(argv[:3]) && is != was {
			m.w.fail("§4: a step of a change that has read %q changes %q to %q", argv[:3], was, is)
		}
	}
}

// keepsItsJob: a job that somebody runs is nobody else's.
func (m *model) keepsItsJob(key string, argv []string) func([]any) {
	text, _ := m.w.redis.server.field(key, argv[0]+" lease")
	until, owner, _ := strings.Cut(text, " ")
	untilMs, _ := strconv.ParseInt(until, 10, 64)
	lease, _ := strconv.ParseInt(argv[2], 10, 64)
	left := untilMs - m.w.redis.clock().UnixMilli()
	return func(reply []any) {
		if number(reply[0]) == 1 && owner != "" && owner != argv[1] && (argv[3] != "" || left >= 0 && left <= lease) {
			m.w.fail("jobs: %s takes the job %s, which %s runs for %s", argv[1], argv[0], owner, time.Duration(left)*time.Millisecond)
		}
	}
}

// keeps judges a script's reply by its rule.
func (m *model) keeps(reply any) {
	all := list(reply)
	if n, ok := reply.(int64); ok {
		all = []any{n}
	}
	if rule := m.rule; rule != nil && len(all) > 0 {
		rule(all)
	}
	m.rule = nil
}
