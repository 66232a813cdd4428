package statespace

import (
	"maps"
	"slices"
)

// Consume returns how many steps of a trace docs/model/DelayTrace.tla takes: these are its rules in Go, for all traces of
// which TLC looks at a sample, and test/models looks whether both say the same.
func Consume(t Trace) int {
	states := []delay{{calls: map[int]call{}, claims: map[int]claim{}, ends: map[int]string{}, moved: map[int]bool{}, published: map[int]bool{}}}
	for i, s := range t.Steps {
		var next []delay
		for _, d := range states {
			if s.Is == "publish" {
				next = append(next, d.publish(s)...)
			} else if d.take(s) && d.isSound() {
				next = append(next, d)
			}
		}
		if states = next; len(states) == 0 {
			return i
		}
	}
	return len(t.Steps)
}

// delay is a state of the model.
type delay struct {
	msg           int // what Redis has, 0: nothing
	waits, marked bool
	due           int64
	versions      int // that were made
	calls         map[int]call
	claims        map[int]claim
	ends          map[int]string // of versions: "" accepted, cancelled, maybe, replaced
	moved         map[int]bool   // by a reschedule: their tokens have ended
	published     map[int]bool
}

type call struct {
	verb   string
	ver    int
	hasRun bool
	isDone bool // a cancel or a reschedule has left its answer
	isOpen bool // it may have an effect now
	says   string
}

type claim struct {
	ver      int
	due      int64
	isLive   bool
	isStored bool
	isOver   bool // its poller has settled it
	isGone   bool // or so its poller was told
}

func (d *delay) take(s TraceStep) bool {
	c, isThere := d.calls[s.Call]
	switch s.Is {
	case "start":
		if isThere {
			return false
		}
		if c = (call{verb: s.Verb, isOpen: true}); s.Verb == "schedule" || s.Verb == "replace" {
			d.versions++
			c.ver = d.versions
		}
		d.calls[s.Call] = c
		return true
	case "repeat":
		if !isThere || c.isOpen {
			return false
		}
		c.isOpen = true
		d.calls[s.Call] = c
		return true
	case "run":
		return isThere && d.run(s, c)
	case "answer":
		return isThere && c.isOpen && d.answer(s, c)
	case "end":
		isOpen := slices.ContainsFunc(slices.Collect(maps.Values(d.calls)), func(c call) bool { return c.isOpen })
		return d.msg == 0 && d.live() == 0 && !isOpen
	}
	return d.poll(s)
}

// has reports whether Redis has what the trace says.
func (d *delay) has(s TraceStep) bool {
	return d.msg == s.Has && d.waits == s.Waits && d.marked == s.Marked && (!s.Waits || s.Due == d.due)
}

func (d *delay) run(s TraceStep, c call) bool {
	if !c.isOpen || c.verb != s.Verb || !s.Second && c.hasRun {
		return false
	}
	before, moves := *d, false
	switch s.Verb {
	case "schedule":
		d.schedule(&c, s.Second)
	case "replace":
		d.replace(&c, s.Second)
	default:
		moves = d.change(&c, s.Second)
	}
	c.hasRun = true
	d.calls[s.Call] = c
	if moves && s.Verb == "reschedule" || d.msg != 0 && d.msg != before.msg {
		if d.due = s.Due; s.Due < s.Asked || s.Due > s.Asked+3 {
			return false
		}
	}
	return before.isSaid(s, c, d.msg) && d.has(s)
}

func (d *delay) create(c *call, isMarked bool) {
	d.msg, d.waits, d.marked, d.ends[c.ver], c.says = c.ver, true, isMarked, "", "created"
}

// hasEnded reports whether the token of a version has left a tombstone.
func (d *delay) hasEnded(ver int) bool { return d.ends[ver] != "" || d.moved[ver] }

func (d *delay) schedule(c *call, second bool) {
	hasEnded := d.hasEnded(c.ver)
	switch {
	case d.msg == 0 && hasEnded, d.msg == c.ver, second && hasEnded:
		c.says = "created"
	case d.msg == 0:
		d.create(c, second)
	case second:
		c.says = "not its own"
	default:
		c.says = "duplicate"
	}
}

func (d *delay) replace(c *call, second bool) {
	switch {
	case d.msg == c.ver, d.hasEnded(c.ver):
		c.says = "created"
	case d.msg != 0 && second:
		c.says = "unknown"
	case d.msg != 0 && !d.waits:
		c.says = "toolate"
	default:
		if d.msg != 0 {
			d.ends[d.msg] = "replaced"
		}
		d.create(c, d.marked || second)
	}
}

// change is a cancel or a reschedule.
func (d *delay) change(c *call, second bool) (isDone bool) {
	switch {
	case second && c.isDone:
	case d.msg == 0:
		c.says = "notfound"
	case !d.waits:
		c.says = "toolate"
	default:
		if c.says, c.isDone = "done", true; d.marked {
			c.says = "maybe"
		}
		if c.verb == "reschedule" {
			d.moved[d.msg] = true
		} else {
			d.ends[d.msg] = c.says
			d.msg, d.waits, d.marked = 0, false, false
		}
		return true
	}
	return false
}

// isSaid reports whether the script says what the model does, where d is what it has found, and now what is there then.
func (d *delay) isSaid(s TraceStep, c call, now int) bool {
	isTaken := c.says == "duplicate" || c.says == "not its own"
	switch s.Says {
	case "created":
		return c.says == "created" && (c.verb == "schedule" || d.msg == 0 || d.msg == c.ver || d.hasEnded(c.ver))
	case "replaced":
		return c.says == "created" && d.msg != 0 && now == c.ver
	case "waits":
		return isTaken && d.waits
	case "inflight":
		return !d.waits && (isTaken || c.says == "toolate")
	case "unknown":
		return c.says == "unknown" || c.says == "not its own"
	}
	return s.Says == c.says
}

func (d *delay) answer(s TraceStep, c call) bool {
	if s.Says == "unknown" {
		c.isOpen = false
		d.calls[s.Call] = c
		return true
	}
	delete(d.calls, s.Call)
	if s.Says == "refused" {
		return !c.hasRun
	}
	return c.hasRun && (s.Says == c.says || s.Says == "duplicate" && c.says == "not its own")
}

// poll is a step of pollers.
func (d *delay) poll(s TraceStep) bool {
	p, isThere := d.claims[s.Claim]
	switch s.Is + " " + s.How {
	case "claim ":
		// It has been due where it was taken before; since then the clock may have been set back.
		wasDue := func(p claim) bool { return p.ver == d.msg && p.due == d.due }
		if !d.waits || s.Claim != len(d.claims)+1 || s.Due != d.due ||
			s.Now < d.due && !slices.ContainsFunc(slices.Collect(maps.Values(d.claims)), wasDue) {
			return false
		}
		d.waits = false
		p = claim{ver: d.msg, due: d.due, isLive: true}
	case "settle gone":
		if !p.isLive || !p.isStored || p.isOver {
			return false
		}
		p.isLive, p.isOver = false, true
		d.msg, d.waits, d.marked = 0, false, false
	case "settle back":
		if !p.isLive || p.isOver || (p.isStored || d.marked) && !s.Marked {
			return false
		}
		p.isLive, p.isOver = false, true
		d.waits, d.marked = true, s.Marked
	case "settle stale":
		p.isGone = true // Another id of the claim may be why, so it may be live.
		d.claims[s.Claim] = p
		return isThere
	case "reclaim ":
		if !p.isLive {
			return false
		}
		p.isLive, d.waits, d.marked = false, true, true
	case "mark ":
		isOf := func(p claim) bool { return (!p.isLive || p.isGone) && p.ver == d.msg }
		if d.msg == 0 || !slices.ContainsFunc(slices.Collect(maps.Values(d.claims)), isOf) {
			return false
		}
		d.marked = true
		return d.has(s)
	default:
		return false
	}
	d.claims[s.Claim] = p
	return d.has(s)
}

// publish returns the states after a copy has come, by whichever claim.
func (d *delay) publish(s TraceStep) (next []delay) {
	for _, n := range s.Claims {
		p := d.claims[n]
		if p.ver == 0 || p.isStored || p.isOver || p.due != s.Due {
			continue
		}
		p.isStored = true
		after := *d
		after.calls, after.claims, after.ends = maps.Clone(d.calls), maps.Clone(d.claims), maps.Clone(d.ends)
		after.moved, after.published = maps.Clone(d.moved), maps.Clone(d.published)
		after.claims[n], after.published[p.ver] = p, true
		if after.isSound() {
			next = append(next, after)
		}
	}
	return next
}

func (d *delay) live() (n int) {
	for _, p := range d.claims {
		if p.isLive {
			n++
		}
	}
	return n
}

// isSound reports whether the invariants of the model hold.
func (d *delay) isSound() bool {
	for ver, end := range d.ends {
		isHere := d.msg == ver && (d.waits || d.live() > 0)
		if end == "done" && d.published[ver] || end == "" && !d.published[ver] && !isHere {
			return false
		}
	}
	return true
}
