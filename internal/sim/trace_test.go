package sim

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/statespace"
)

var (
	tracesMost = flag.Int("traces", 0, "of how many identities of each story to keep what has happened to them")
	tracesFile = flag.String("tracesfile", "", "where TestTraces writes these, one a line")
)

// kept are traces of a story.
type kept struct {
	Some       []statespace.Trace
	Identities int            // that callers have scheduled
	Fit        int            // of these: that did nothing else than what the model knows
	Left       map[string]int // why the others were left out
}

// recorder writes down what happens to each identity, until something does that the model does not know.
type recorder struct {
	m       *model
	all     map[string]*traced // by member
	calls   map[string]*ask    // by their tokens
	script  string             // that runs, "" if none
	keys    []string
	argv    []string
	touched []placeChange // by it
}

type traced struct {
	id     *identity
	why    string // it is not traced any more
	tag    string // the shard in which it is
	steps  []statespace.TraceStep
	calls  map[*ask]int
	token  map[*ask]string
	lives  map[*life]int
	claims []traceClaim
}

type traceClaim struct {
	token string
	by    *host
	life  *life
}

type placeChange struct {
	p           *place
	before, now facts
}

func newRecorder(m *model) *recorder {
	return &recorder{m: m, all: map[string]*traced{}, calls: map[string]*ask{}}
}

func (r *recorder) of(id *identity) *traced {
	t := r.all[id.member]
	if t == nil {
		t = &traced{id: id, calls: map[*ask]int{}, token: map[*ask]string{}, lives: map[*life]int{}}
		if r.all[id.member] = t; id.isOfRows {
			t.why = "rows"
		} else if isFiring(id.member) {
			t.why = "recurring"
		}
	}
	return t
}

// leaves ends the trace of an identity, for that reason.
func (r *recorder) leaves(id *identity, why string) {
	if t := r.of(id); t.why == "" {
		t.why = why
	}
}

func (r *recorder) add(t *traced, s statespace.TraceStep) {
	if t.why == "" {
		t.steps = append(t.steps, s)
	}
}

// begins is told that a call begins, or goes on.
func (r *recorder) begins(a *ask) {
	t := r.of(a.who)
	if n := t.calls[a]; n > 0 {
		r.add(t, statespace.TraceStep{Is: "repeat", Call: n})
		return
	}
	n := len(t.calls) + 1
	if t.calls[a] = n; a.life != nil {
		t.lives[a.life] = len(t.lives) + 1
	}
	r.add(t, statespace.TraceStep{Is: "start", Call: n, Verb: a.verb})
}

// answered is told what a call was answered.
func (r *recorder) answered(a *ask, err error) {
	t := r.of(a.who)
	r.add(t, statespace.TraceStep{Is: "answer", Call: t.calls[a], Says: says(a.verb, err)})
}

func says(verb string, err error) string {
	for _, known := range []struct {
		err  error
		says string
	}{
		{delay.ErrUnknown, "unknown"},
		{delay.ErrForgotten, "unknown"},
		{delay.ErrDuplicate, "duplicate"},
		{delay.ErrNotFound, "notfound"},
		{delay.ErrTooLate, "toolate"},
		{delay.ErrMaybePublished, "maybe"},
	} {
		if errors.Is(err, known.err) {
			return known.says
		}
	}
	switch {
	case !delay.Done(err):
		return "refused"
	case verb == "schedule" || verb == "replace":
		return "created"
	}
	return "done"
}

// starts is told that a script runs.
func (r *recorder) starts(script string, keys, argv []string) {
	r.script, r.keys, r.argv = script, keys, argv
}

// changed is told what a command has made of a place.
func (r *recorder) changed(p *place, before, now facts) {
	r.touched = append(r.touched, placeChange{p, before, now})
	if now.state == dead || before.state == dead {
		r.leaves(p.of, "dead letters")
	}
	if t := r.of(p.of); t.tag == "" {
		t.tag = p.tag
	} else if t.tag != p.tag {
		r.leaves(p.of, "another shard")
	}
}

// ran is told that a command has ended, and its reply.
func (r *recorder) ran(reply []any) {
	script := r.script
	r.script = ""
	switch script {
	case "schedule", "replace", "cancel", "reschedule":
		r.runs(script, reply)
	case "settle":
		r.settled()
	}
	for _, c := range r.touched {
		t := r.of(c.p.of)
		switch script {
		case "schedule", "replace", "cancel", "reschedule", "settle":
		case "claim":
			if c.before.state != waiting || c.now.state != inFlight { // It counts tries, or is answered once more.
				r.leaves(c.p.of, "a claim changes more")
			}
			t.claims = append(t.claims, traceClaim{r.argv[0] + "|" + r.argv[1], r.m.w.redis.server.by, c.now.life})
			s := r.step(t, c.p, "claim")
			s.Claim, s.Due, s.Now = len(t.claims), r.dueOf(c.p, c.before.score), r.sinceBegan(r.m.w.redis.clock().UnixMilli())
			r.add(t, s)
		case "reclaim":
			s := r.step(t, c.p, "reclaim")
			s.Claim = len(t.claims)
			r.add(t, s)
		case "mark":
			r.add(t, r.step(t, c.p, "mark"))
		default:
			r.leaves(c.p.of, "what a "+script+" does")
		}
	}
	r.touched = r.touched[:0]
}

// step is a step after which Redis has what it has now.
func (r *recorder) step(t *traced, p *place, is string) statespace.TraceStep {
	now := r.m.look(p)
	s := statespace.TraceStep{Is: is}
	if now.life != nil {
		s.Has = t.lives[now.life]
		fields := r.attempts(p)
		s.Marked = len(fields) > 2 && fields[2] != "0"
		if s.Waits = now.state == waiting; s.Waits {
			s.Due = r.dueOf(p, now.score)
		}
	}
	return s
}

func (r *recorder) attempts(p *place) []string {
	counts, _ := r.m.w.redis.server.field(p.base+"attempts", p.of.member)
	return strings.Fields(counts)
}

// dueOf is the due time in force: a retry is noted beside it.
func (r *recorder) dueOf(p *place, score int64) int64 {
	due := score & (1<<42 - 1)
	if fields := r.attempts(p); len(fields) > 4 {
		due, _ = strconv.ParseInt(fields[4], 10, 64)
	}
	return r.sinceBegan(due)
}

func (r *recorder) sinceBegan(ms int64) int64 { return ms - r.m.w.began.UnixMilli() }

// codes are what the scripts answer.
var codes = map[int64]string{1: "created", 2: "waits", 3: "inflight", 5: "unknown", 6: "replaced", 7: "done", 8: "notfound", 9: "maybe"}

// runs notes a run of callers.
func (r *recorder) runs(script string, reply []any) {
	if number(reply[0]) != 0 { // It did not take place.
		for _, c := range r.touched {
			r.add(r.of(c.p.of), statespace.TraceStep{Is: "a refused run has changed something"})
		}
		return
	}
	tokens, ids := r.tokens(script)
	isSecond := r.m.w.redis.server.isSecond || (script == "cancel" || script == "reschedule") && r.argv[2] == "2"
	asksOnly := script == "schedule" && r.argv[3][1] == '0' || script == "replace" && r.argv[6] == "0"
	for i, member := range ids {
		code := int64(1)
		if len(reply) > 3 {
			code = number(reply[2+2*i])
		}
		id := r.m.identities[member]
		if code == 0 || id == nil {
			continue
		}
		p, t := r.m.place(r.keys[0], member), r.of(id)
		if t.tag == "" {
			t.tag = p.tag
		}
		a := r.callOf(script, p, tokens[i])
		switch {
		case t.tag != p.tag:
			r.leaves(id, "another shard")
		case asksOnly: // It has no effect, and so may be asked again as if it were the first.
			r.leaves(id, "an earlier layout")
		case code == 11, (script == "cancel" || script == "reschedule") && r.argv[4] == "0": // The call goes on elsewhere, or ends before.
			r.leaves(id, "an earlier layout")
		case a == nil:
			r.leaves(id, "calls for many")
		case (!a.isUnderWay || !isSecond && t.isRepeated(a)) && r.m.clockWasSet(r.m.w.now()-2*time.Minute): // A run that was over is in time again.
			r.leaves(id, "a clock set back")
		case code == 5 && r.m.clockWasSet(r.m.w.now()-2*time.Minute): // What a call has left is forgotten early.
			r.leaves(id, "a clock set forward")
		case code == 3 && a.life != nil && a.life.promise.maxWait > 0: // The SDK asks again, under another token.
			r.leaves(id, "debounced in flight")
		case codes[code] == "":
			r.leaves(id, "answers about topics and dead letters")
		}
		if t.why != "" {
			continue
		}
		s := r.step(t, p, "run")
		s.Call, s.Verb, s.Second, s.Says = t.calls[a], script, isSecond, codes[code]
		promised := a.promise
		if a.life != nil {
			promised = a.life.promise
		}
		if promised.isDelay || !promised.at.IsZero() {
			s.Asked = r.sinceBegan(r.m.asked(a.life, promised).UnixMilli())
		}
		r.add(t, s)
	}
}

// isRepeated reports whether a call was made again.
func (t *traced) isRepeated(a *ask) bool {
	return slices.ContainsFunc(t.steps, func(s statespace.TraceStep) bool { return s.Is == "repeat" && s.Call == t.calls[a] })
}

// tokens are the calls of a run, and their messages.
func (r *recorder) tokens(script string) (tokens, ids []string) {
	switch script {
	case "schedule":
		for i, n := 0, (len(r.argv)-4)/3; i < n; i++ {
			tokens, ids = append(tokens, r.argv[4+2*n+i]), append(ids, r.argv[5+2*i])
		}
	case "replace":
		for i := 9; i+2 < len(r.argv); i += 3 {
			tokens, ids = append(tokens, r.argv[i+2]), append(ids, r.argv[i])
		}
	case "cancel":
		for i := 9; i+3 < len(r.argv); i += 4 {
			tokens, ids = append(tokens, r.argv[i]), append(ids, r.argv[i+1])
		}
	case "reschedule":
		for i := 8; i+5 < len(r.argv); i += 6 {
			tokens, ids = append(tokens, r.argv[i]), append(ids, r.argv[i+1])
		}
	}
	return tokens, ids
}

// callOf is the call of a run: that of a message's body, or the one that was under way when the token was first seen.
func (r *recorder) callOf(script string, p *place, token string) *ask {
	t := r.of(p.of)
	switch script {
	case "schedule", "replace":
		if l := r.m.byBody[token[max(0, len(token)-bodyLength):]]; l != nil && !l.isOnce {
			return l.ask
		}
		return nil
	}
	if a := r.calls[token]; a != nil {
		return a
	}
	a := p.of.cancels
	if script == "reschedule" {
		a = p.of.reschedules
	}
	if by := r.m.w.redis.server.by; a == nil || by == nil || a.by != by.name || t.token[a] != "" {
		return nil
	}
	r.calls[token], t.token[a] = a, token
	return a
}

// settled notes what a settle has done to each message that it names.
func (r *recorder) settled() {
	for _, c := range r.touched {
		t := r.of(c.p.of)
		st := r.step(t, c.p, "settle")
		if st.Claim = t.claimOf(r.argv[0]); st.Claim == 0 {
			r.leaves(c.p.of, "a claim of before")
		}
		switch {
		case c.now.state == waiting:
			st.How = "back"
		case c.now.state == absent && r.argv[17] != "0":
			r.leaves(c.p.of, "dropped")
		case c.now.state == absent:
			st.How = "gone"
		}
		r.add(t, st)
	}
	if len(r.touched) > 0 {
		return
	}
	// A further run has perhaps found what an earlier one has done; or none has arrived.
	removed, _ := strconv.Atoi(r.argv[6])
	back, _ := strconv.Atoi(r.argv[7])
	named := slices.Clone(r.argv[18 : 18+removed])
	for i := range back {
		named = append(named, r.argv[18+removed+3*i])
	}
	for _, member := range named {
		if t := r.all[member]; t != nil && t.claimOf(r.argv[0]) > 0 {
			r.add(t, statespace.TraceStep{Is: "settle", How: "stale", Claim: t.claimOf(r.argv[0])})
		}
	}
}

// claimOf is the last claim under that token.
func (t *traced) claimOf(token string) int {
	for i, c := range slices.Backward(t.claims) {
		if c.token == token {
			return i + 1
		}
	}
	return 0
}

// stored is told that the broker has stored a copy.
func (r *recorder) stored(l *life, by *host, due time.Time) {
	t := r.of(r.m.identity(l.member))
	s := statespace.TraceStep{Is: "publish", Due: r.sinceBegan(due.UnixMilli())}
	for i, c := range t.claims {
		if c.by == by && c.life == l {
			s.Claims = append(s.Claims, i+1)
		}
	}
	r.add(t, s)
}

// fit are the identities to which nothing has happened that the model does not know.
func (r *recorder) fit() (fit []*traced, k *kept) {
	k = &kept{Left: map[string]int{}}
	for _, member := range sortedKeys(r.all) {
		t := r.all[member]
		if len(t.lives) == 0 && t.why != "rows" {
			continue
		}
		if k.Identities++; t.why != "" {
			k.Left[t.why]++
			continue
		}
		fit = append(fit, t)
	}
	k.Fit = len(fit)
	return fit, k
}

func (t *traced) whole(seed uint64) statespace.Trace {
	return statespace.Trace{Seed: seed, Of: t.id.member, Steps: append(t.steps, statespace.TraceStep{Is: "end"})}
}

// check judges each trace by the rules of the model.
func (r *recorder) check() {
	fit, _ := r.fit()
	for _, t := range fit {
		whole := t.whole(0)
		if n := statespace.Consume(whole); n < len(whole.Steps) {
			r.m.w.fail("model: step %d of %q is none of docs/model/DelayTrace.tla: %s", n+1, whole.Of, whole.Steps[n])
		}
	}
}

// keep chooses traces: the longest, and as many by chance.
func (r *recorder) keep(seed uint64, most int) *kept {
	if most == 0 {
		return nil
	}
	fit, k := r.fit()
	slices.SortStableFunc(fit, func(a, b *traced) int { return len(b.steps) - len(a.steps) })
	rest := fit[min(len(fit), (most+1)/2):]
	rand.New(rand.NewPCG(seed, 5)).Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	for _, t := range fit[:min(len(fit), most)] {
		k.Some = append(k.Some, t.whole(seed))
	}
	return k
}

// TestTraces writes what has happened to some identities of many stories, for the model checker: see docs/model/README.md.
func TestTraces(t *testing.T) {
	if *tracesFile == "" {
		t.Skip("make traces asks for it")
	}
	file, err := os.Create(*tracesFile)
	require.NoError(t, err)
	sum := kept{Left: map[string]int{}}
	for o := range eachSeed(t, *first, *seeds, nil, "-traces", strconv.Itoa(*tracesMost)) {
		require.Empty(t, o.Failed, "seed %d", o.Seed)
		sum.Some = append(sum.Some, o.Traces.Some...)
		sum.Identities, sum.Fit = sum.Identities+o.Traces.Identities, sum.Fit+o.Traces.Fit
		for why, n := range o.Traces.Left {
			sum.Left[why] += n
		}
	}
	slices.SortStableFunc(sum.Some, func(a, b statespace.Trace) int { return cmp.Compare(a.Seed, b.Seed) })
	for lines := json.NewEncoder(file); len(sum.Some) > 0; sum.Some = sum.Some[1:] {
		require.NoError(t, lines.Encode(sum.Some[0]))
	}
	require.NoError(t, file.Close())
	t.Logf("%d seeds: of %d identities %d are in the model's words; left out: %v", *seeds, sum.Identities, sum.Fit, sum.Left)
}
