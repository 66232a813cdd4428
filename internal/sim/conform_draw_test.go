package sim

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// lane is one queue of a run: its oracle, and what draws the next verb by chance and by what is there, so that most
// verbs find something, and many collide.
type lane struct {
	*rand.Rand

	o       *oracle
	home    home
	set     string
	ids     []string
	history history
	last    int               // of the tokens
	calls   []called          // of producers, of which further runs may come
	rows    []named           // tokens of rows that were used
	traced  map[string]string // the last call that schedules each id, and leaves a trace
	known   []settle          // claims, ended or not
	numbers map[string]int64
	jobs    int
	story   []step
}

// called is a producer's call, and when its first run was.
type called struct {
	verb verb
	ms   int64
}

// step is one verb at its time, and what is expected of it.
type step struct {
	us   int64
	verb verb
	want any
	hint string
}

func newLane(rng *rand.Rand, set string, at home) *lane {
	l := &lane{Rand: rng, o: newOracle(), home: at, set: set, numbers: map[string]int64{}, traced: map[string]string{}}
	l.ids = []string{"1", "2", "k\x001", "k\x003", "12:34:x", "ключ\x00%d|*"}
	if l.IntN(5) == 0 { // Enough for what begins with many.
		for i := range idsMax - 6 {
			l.ids = append(l.ids, fmt.Sprint("many", i))
		}
	}
	if l.IntN(2) == 0 {
		l.history = history{Most: one(l, 1, 3, 20), AgeMs: one[int64](l, 20, 100_000)}
	}
	return l
}

// idsMax is how many messages a queue may have.
const idsMax = 40

func one[T any](l *lane, from ...T) T { return from[l.IntN(len(from))] }

// in is true once in that many times.
func (l *lane) in(times int) bool { return l.IntN(times) == 0 }

// weighted is how often a verb comes in each set.
type weighted struct {
	messages, outbox, queue int
	draw                    func(l *lane) verb
}

// sets are the verbs of callers and pollers, the same with those for rows, and those of a queue beside its shards.
var sets = []string{"messages", "outbox", "queue"}

func (w *weighted) weight(set string) int {
	return []int{w.messages, w.outbox, w.queue}[slices.Index(sets, set)]
}

var draws []weighted

func init() {
	draws = []weighted{
		{24, 8, 0, (*lane).schedule},
		{8, 3, 0, (*lane).replace},
		{10, 10, 0, (*lane).cancel},
		{10, 10, 0, (*lane).reschedule},
		{22, 16, 0, (*lane).claim},
		{26, 20, 0, (*lane).settle},
		{6, 5, 0, (*lane).reclaim},
		{3, 3, 0, func(l *lane) verb {
			v := &mark{Counts: l.in(2), BytesMax: l.bytes()}
			for _, id := range l.some(3) {
				v.List = append(v.List, named{id, l.inForce(id)})
			}
			return v
		}},
		{1, 1, 0, func(l *lane) verb { return &handover{l.instance()} }},
		{1, 1, 0, func(l *lane) verb { return &confirm{l.claimed()} }},
		{0, 24, 0, (*lane).put},
		{0, 6, 0, (*lane).renew},
		{0, 3, 0, (*lane).remove},
		{0, 5, 0, (*lane).forget},
		{2, 2, 0, (*lane).fence},
		{1, 1, 0, func(l *lane) verb {
			before := l.o.meta["redriven"] + " " + l.o.meta["replaced"]
			return &drained{l.head().Epoch, one(l, before, before, "1 1")}
		}},
		{1, 1, 0, func(*lane) verb { return &drop{} }},
		{1, 1, 0, func(l *lane) verb { return &budget{"budget", one(l, "", "", "3 messages", "40 messages")} }},
		{1, 1, 0, func(*lane) verb { return &touch{} }},
		{2, 2, 0, (*lane).mend},
		{4, 3, 0, func(l *lane) verb { return &get{l.epoch(), l.history, l.id()} }},
		{1, 1, 0, func(*lane) verb { return &stats{} }},
		{1, 1, 0, func(l *lane) verb { return &parked{one(l, 1, 2), 1 + l.IntN(4)} }},
		{3, 2, 0, (*lane).page},
		{3, 2, 0, func(l *lane) verb {
			return &tagged{l.epoch(), one(l, "a", "b", "ab"), one(l, "", "", l.id()), 1 + l.IntN(4)}
		}},
		{1, 1, 0, func(l *lane) verb { return &members{head: l.epoch(), IDs: l.some(4)} }},
		{1, 1, 0, func(l *lane) verb {
			return &members{
				head: l.epoch(), Pages: true, Topic: one(l, "", "t"), Not: one(l, "", "~"), Prefix: one(l, "", "", "1"), MinMs: one(l, 0, l.o.now()), MaxMs: one(l, 1<<53, l.o.now()),
			}
		}},
		{1, 1, 0, func(*lane) verb { return &scan{} }},
		{0, 2, 0, func(l *lane) verb {
			v := &rows{BytesMax: one(l, 1<<20, l.bytes())}
			if l.in(3) {
				v.Rest = l.some(4)
			}
			return v
		}},
		{0, 0, 10, (*lane).layout},
		{0, 0, 10, (*lane).change},
		{0, 0, 10, func(l *lane) verb { return &heartbeat{l.instance(), one[int64](l, 5, 500, 30_000)} }},
		{0, 0, 5, func(l *lane) verb { return &leave{l.instance()} }},
		{0, 0, 10, func(l *lane) verb {
			calls := cmp.Or(l.o.queue.paused["by\t\t"], "0")
			return &pause{one(l, "", "t", "u", "v"), l.in(2), 1 + l.IntN(3), one(l, "x", "y z"), one(l, calls, calls, calls, "", "1")}
		}},
		{0, 0, 20, (*lane).rate},
		{0, 0, 20, (*lane).recurring},
		{0, 0, 10, func(l *lane) verb {
			l.jobs++
			is := l.o.queue.turns.text
			return &turn{one(l, is, is, "", "-", "x"), one(l, fmt.Sprint("mark", l.jobs), is), one[int64](l, 50, 90_000), l.head()}
		}},
		{0, 0, 10, func(l *lane) verb {
			l.jobs++
			is := l.o.queue.declared.revision
			return &declare{one(l, is, is, is, "", "-", "x"), one(l, fmt.Sprint("revision", l.jobs), is, "x"), fmt.Sprint("declared", l.IntN(9))}
		}},
		{0, 0, 5, (*lane).jobstart},
		{0, 0, 15, (*lane).jobkeep},
		{0, 0, 10, func(l *lane) verb {
			return &oncebegin{one(l, "f", "f", "f", "g"), one(l, "o", "p", "q"), fmt.Sprint("plan", l.IntN(9)), one[int64](l, 5, 500), one[int64](l, 50, 90_000)}
		}},
		{0, 0, 10, func(l *lane) verb {
			return &onceend{one(l, "o", "p", "q"), one(l, "a", "r", "f"), one[int64](l, 50, 90_000), one(l, "", "200 ok")}
		}},
	}
}

// next draws a verb at that time, and asks the oracle.
func (l *lane) next(us int64) step {
	l.o.us = us
	v := l.draw()
	if l.o.meta["epoch"] == "" && l.set != "queue" && l.in(4) {
		v = l.fence()
	}
	s := l.o.expect(us, v)
	switch v := v.(type) {
	case *claim:
		if list := l.o.claims[v.token()]; len(list) > 0 {
			l.learn(settle{Token: v.token(), List: list})
		}
	case *settle:
		if rest := v.after(); len(rest) > 0 && packed(rest) == packed(l.o.claims[v.Token]) {
			l.learn(settle{Token: v.Token, List: rest})
		}
	}
	l.story = append(l.story, s)
	return s
}

// expect is what the verb should answer at that time.
func (o *oracle) expect(us int64, v verb) step {
	o.us, o.hint = us, ""
	o.held()
	o.queue.record(o.now())
	o.queue.turn(o.now())
	return step{us, v, v.ask(o), o.hint}
}

func (l *lane) draw() verb {
	sum := 0
	for _, d := range draws {
		sum += d.weight(l.set)
	}
	for at := l.IntN(sum); ; {
		for _, d := range draws {
			if at -= d.weight(l.set); at < 0 {
				return d.draw(l)
			}
		}
	}
}

func (l *lane) learn(s settle) {
	if l.known = append(l.known, s); len(l.known) > 10 {
		l.known = l.known[1:]
	}
}

func (l *lane) id() string { return one(l, l.ids...) }

// some are different ids, seldom many.
func (l *lane) some(most int) []string {
	if l.in(20) {
		most = len(l.ids)
	}
	ids := slices.Clone(l.ids)
	l.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids[:1+l.IntN(min(most, len(ids)))]
}

func (l *lane) instance() string { return one(l, "a.1", "a.1", "b.1", "a") }

func (l *lane) claimed() string {
	if len(l.known) == 0 || l.in(8) {
		return "a.1|1"
	}
	return l.known[l.IntN(len(l.known))].Token
}

// head is mostly of the epoch in force, and now.
func (l *lane) head() head {
	epoch, now := l.o.meta["epoch"], l.o.now()
	if l.in(40) {
		epoch = "0-z"
	}
	span := [2]int64{now - 5, now + 200}
	if l.in(25) {
		span = one(l, [2]int64{now, now}, [2]int64{now - 10, now - 1}, [2]int64{now + 1, now + 10}, [2]int64{-5, now})
	}
	return head{epoch, span}
}

// epoch is for what only reads, and has no span.
func (l *lane) epoch() head { return head{Epoch: l.head().Epoch} }

// bytes is a limit; at times what some messages have, to the byte.
func (l *lane) bytes() (limit int64) {
	if !l.in(6) {
		return one[int64](l, 1<<20, 1<<20, 1<<20, 1<<20, 1, 60, 150, 400)
	}
	for _, id := range l.some(3) {
		if e := l.o.messages[id]; e != nil {
			limit += e.size()
		}
	}
	return max(1, limit)
}

func (l *lane) tombMs() int64 { return one[int64](l, 60_000, 60_000, 40) }
func (l *lane) oldMs() int64  { return one(l, l.o.now(), l.o.now(), l.o.now()-100, 0) }
func (l *lane) topics() (list []string) {
	if l.in(10) {
		list = []string{one(l, "t", "", "orders.new")}
	}
	return list
}

// token is a new one of 16 bytes.
func (l *lane) token(kind string) string {
	l.last++
	return kind + fmt.Sprintf("%0*d", 16-len(kind), l.last)
}

func (l *lane) note(id, token string) note {
	topic := one(l, "t", "t", "orders.new", strings.Repeat("long", 40))
	body := one(l, "", "b", "\x0adelay-tags\x01a", "\x09delay-uid\x01b", strings.Repeat("x", 90))
	return note{ID: id, Token: token, Topic: topic, Tags: one(l, "", "", "a", "a,b", "ab,b"), Body: body}
}

func (l *lane) dueMs() int64 {
	return max(0, l.o.now()+one[int64](l, -1000, -1, 0, 0, 1, 3, 20, 900, 61_000))
}

func (l *lane) when() when {
	if l.in(2) {
		return when{Mode: '+', Ms: one[int64](l, 0, 0, 1, 3, 20, 900, 61_000)}
	}
	return when{Ms: l.dueMs()}
}

func (l *lane) requests() (list []request) {
	for _, id := range l.some(3) {
		list = append(list, request{l.note(id, l.token("m")), l.when()})
		if l.in(20) {
			list = append(list, request{l.note(id, l.token("m")), l.when()})
		}
	}
	return list
}

// again repeats a call that the producer has made: by a further run, or the same one, which comes twice.
func again[T any, V interface {
	*T
	verb
}](l *lane, change func(v V, ms int64),
) verb {
	var all []called
	for _, c := range l.calls {
		if _, ok := c.verb.(V); ok {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil
	}
	c := one(l, all...)
	v := *c.verb.(V) //nolint:forcetypeassert // it is one
	if !l.in(4) {
		change(&v, c.ms)
	}
	return V(&v)
}

func (l *lane) call(v verb) verb {
	if l.calls = append(l.calls, called{v, l.o.now()}); len(l.calls) > 12 {
		l.calls = l.calls[1:]
	}
	return v
}

// heeds is what a further run of a call leaves: it mostly heeds what the first one has left.
func (l *lane) heeds(leaves string) string {
	if l.in(4) {
		return leaves
	}
	return strings.ReplaceAll(leaves, "f", "t")
}

// first and later are the numbers of runs of a cancel or reschedule.
func (l *lane) first() int { return one(l, 1, 1, 1, 1, 3, 4) }

func later(first int) int {
	if first == 1 {
		return 2
	}
	return 3
}

func (l *lane) schedule() verb {
	if l.in(6) {
		if v := again(l, func(v *schedule, ms int64) {
			v.head, v.StartMs, v.Leaves = l.head(), ms-one[int64](l, 0, 0, 5), l.heeds(v.Leaves)
		}); v != nil {
			return v
		}
	}
	v := &schedule{head: l.head(), Asks: l.in(20), BytesMax: l.bytes(), Topics: l.topics(), List: l.requests()}
	if l.in(10) {
		v.OnceMs, v.Leaves = one[int64](l, 50, 90_000), one(l, "", "t", "f")
		for _, r := range v.List {
			l.traced[r.ID] = r.Token
		}
	}
	return l.call(v)
}

func (l *lane) replace() verb {
	if l.in(5) {
		if v := again(l, func(v *replace, _ int64) { v.head, v.Run, v.Leaves = l.head(), 2, l.heeds(v.Leaves) }); v != nil {
			return v
		}
	}
	v := &replace{head: l.head(), Run: 1, TombMs: l.tombMs(), BytesMax: l.bytes(), Asks: l.in(15), Topics: l.topics(), List: l.requests()}
	if l.in(10) {
		v.OnceMs, v.Leaves = one[int64](l, 50, 90_000), one(l, "", "t", "f")
	}
	for i := range v.List {
		if w := &v.List[i].When; w.Mode == '+' && l.in(3) {
			w.Max = 1 + w.Ms + one[int64](l, 0, 1, 20, 900)
		}
	}
	return l.call(v)
}

// inForce is mostly the token of that message.
func (l *lane) inForce(id string) string {
	if e := l.o.messages[id]; e != nil && !l.in(10) {
		return e.Token
	}
	return l.token("x")
}

// creator is mostly a call that has created that message, or an earlier one of the id.
func (l *lane) creator(id string) string {
	if e := l.o.messages[id]; e != nil && !l.in(4) {
		if e.uid != "" {
			return e.uid
		}
		return e.Token
	}
	if past := l.traced[id]; past != "" {
		return past
	}
	return l.token("x")
}

// row is a row of that id, which mostly is known.
func (l *lane) row(id string) string {
	if e := l.o.messages[id]; e != nil && isOutbox(e.Token) && !l.in(4) {
		return e.Token
	}
	for _, r := range l.rows {
		if r.ID == id && l.in(2) {
			return r.Token
		}
	}
	return l.fresh(id)
}

// fresh is the token of a new row, or of a message without one.
func (l *lane) fresh(id string) string {
	token := l.token(one(l, "~r", "~r", "~r", "~~t", "~\x01 r"))
	if l.rows = append(l.rows, named{id, token}); len(l.rows) > 12 {
		l.rows = l.rows[1:]
	}
	return token
}

func (l *lane) cancel() verb {
	if l.in(6) {
		if v := again(l, func(v *cancel, _ int64) { v.head, v.Run = l.head(), later(v.Run) }); v != nil {
			return v
		}
	}
	v := &cancel{
		head: l.head(), history: l.history, OldMs: l.oldMs(), Run: l.first(), TombMs: l.tombMs(), Last: !l.in(4), BytesMax: l.bytes(),
		Purge: l.in(6), Topics: l.topics(),
	}
	switch {
	case v.Purge:
	case l.in(8):
		v.Tag = one(l, "a", "b")
	case l.in(4):
		v.Never = true
	}
	for _, id := range l.some(3) {
		r := target{Token: l.token("c"), ID: id}
		switch {
		case v.Never:
			r.Row = l.creator(id)
		case l.set == "outbox" && l.in(2):
			r.Row = l.row(id)
		case l.in(5):
			r.Life = l.inForce(id)
		}
		v.List = append(v.List, r)
	}
	return l.call(v)
}

func (l *lane) reschedule() verb {
	if l.in(6) {
		if v := again(l, func(v *reschedule, _ int64) { v.head, v.Run = l.head(), later(v.Run) }); v != nil {
			return v
		}
	}
	v := &reschedule{
		head: l.head(), OldMs: l.oldMs(), Run: l.first(), TombMs: l.tombMs(), Last: !l.in(4), BytesMax: l.bytes(), Redrive: l.in(5), Topics: l.topics(),
	}
	for _, id := range l.some(3) {
		r := move{Token: l.token("r"), ID: id, When: l.when()}
		switch {
		case l.set == "outbox" && l.in(2):
			r.Target = l.row(id)
			r.Row, r.When = l.fresh(id), when{Ms: l.dueMs()}
		case l.in(5):
			r.Life = l.inForce(id)
		case l.in(5):
			r.When = when{Mode: 'b', Ms: one[int64](l, 0, 5, -5, -math.MaxInt32*1000, 1000)}
		}
		v.List = append(v.List, r)
	}
	return l.call(v)
}

var slots = []int{1, 2, 2047}

func (l *lane) claim() verb {
	v := &claim{
		Instance: l.instance(), Max: one(l, 0, 1, 2, 5, 5, 40), BytesMax: one[int64](l, 1<<20, 1<<20, 1, 200), TimeoutMs: one[int64](l, 0, 50, 30_000),
		LeaseMs: one[int64](l, 3, 500, 30_000), OldMs: l.oldMs(),
	}
	if v.Number = l.numbers[v.Instance] + 1; l.in(10) {
		v.Number = max(1, v.Number-int64(l.IntN(4)))
	}
	l.numbers[v.Instance] = max(l.numbers[v.Instance], v.Number)
	if l.in(5) {
		v.Slot = one(l, slots...)
	}
	if l.in(5) {
		v.Free = slots
	}
	if l.in(6) {
		v.Seize = one(l, l.o.held(), "a.1|1|0")
	}
	for _, token := range slices.Sorted(maps.Keys(l.o.deadline)) {
		if !l.in(5) {
			v.Live = append(v.Live, token)
		}
	}
	return v
}

func (l *lane) settle() verb {
	if len(l.known) == 0 {
		return l.claim()
	}
	k := l.known[len(l.known)-1]
	for range 3 { // Mostly one that is under way.
		if k = l.known[l.IntN(len(l.known))]; l.o.claims[k.Token] != nil {
			break
		}
	}
	v := &settle{history: l.history, Token: k.Token, List: k.List, Repeated: l.in(5), Ledger: !l.in(4), TombMs: l.tombMs()}
	for _, c := range k.List {
		v.Verdicts = append(v.Verdicts, l.verdict(c))
	}
	if rest := v.after(); len(rest) == len(k.List) {
		v.Verdicts[0] = verdict{Verb: "ack"}
	}
	return v
}

// verdict does with the counts what the poller does.
func (l *lane) verdict(c claimed) verdict {
	n := counts(c.Tries)
	text := func() string { return fmt.Sprintf("%d %d %d %d", n[0], n[1], n[2], n[3]) }
	v := verdict{Verb: one(l, "keep", "ack", "ack", "ack", "drop", "retry", "retry", "release", "park", "bury")}
	switch v.Verb {
	case "retry":
		v.DelayMs, n[0], n[1] = one[int64](l, 0, 1, 10, 1000), n[0]+1, n[1]+1
		v.Tries = text()
	case "bury":
		n[1]++
		v.Reason, v.Tries = one(l, "", "refused", "1:2:3", "ключ\x00"), text()
	case "park", "release":
		if v.Verb == "park" {
			v.Slot, v.Route, v.SinceMs = one(l, slots...), one(l, "", "r", "a 1:b"), one(l, 0, 0, l.o.now()-7)
			v.Reason = one(l, "", "full", "paused", "rate", "no leader")
		}
		switch {
		case l.in(3):
			n[1], n[2], n[3] = n[1]+1, n[2]+1, n[3]+1
			v.Tries = text()
		case n == [4]int64{} && c.Tries != "":
			v.Tries = "-"
		case strings.Count(c.Tries, " ") == 4:
			v.Tries = text()
		}
	}
	return v
}

func (l *lane) reclaim() verb {
	v := &reclaim{Instance: cmp.Or(one(l, "", l.o.holder.instance), l.instance()), Foreign: l.in(3)}
	if l.in(3) {
		v.Stray = l.claimed()
	}
	return v
}

func (l *lane) put() verb {
	v := &put{head: l.head(), Asks: l.in(15), BytesMax: l.bytes()}
	for _, id := range l.some(3) {
		v.List = append(v.List, l.putRow(id))
		if l.in(20) {
			v.List = append(v.List, l.putRow(id))
		}
	}
	return v
}

func (l *lane) putRow(id string) row {
	r := row{note: l.note(id, one(l, l.row(id), l.fresh(id))), DueMs: l.dueMs()}
	r.Mark = one(l, "0", "0", "1", "due", fmt.Sprint(l.o.now()-100), "5")
	if strings.HasPrefix(r.Token, "~~") && !l.in(5) {
		r.UntilMs = l.o.now() + one[int64](l, 30, 100_000)
	}
	return r
}

func (l *lane) renew() verb {
	v := &renew{head: l.head(), TombMs: l.tombMs(), BytesMax: l.bytes()}
	for _, id := range l.some(2) {
		v.List = append(v.List, row{note: l.note(id, one(l, l.row(id), l.fresh(id))), DueMs: l.dueMs(), Mark: one(l, "0", "1", "due"), Before: l.inForce(id)})
	}
	return v
}

func (l *lane) remove() verb {
	v := &remove{history: l.history, TombMs: l.tombMs(), BytesMax: l.bytes()}
	for _, id := range l.some(3) {
		v.List = append(v.List, ended{id, l.inForce(id), one(l, "p", "c")})
	}
	return v
}

func (l *lane) forget() verb {
	v := &forget{TombMs: l.tombMs()}
	for _, token := range slices.Sorted(maps.Keys(l.o.ledger)) {
		if l.in(2) {
			v.List = append(v.List, fated{token, one(l, l.o.ledger[token], l.o.ledger[token], "pother")})
		}
	}
	if len(v.List) == 0 {
		v.List = []fated{{l.token("~r"), "p1"}}
	}
	return v
}

func (l *lane) fence() verb {
	counter, life, _ := strings.Cut(l.o.meta["epoch"], "-")
	if counter == "" {
		counter, life = "0", "x"
	}
	if l.in(8) {
		life = one(l, "x", "y")
	}
	return &fence{fmt.Sprintf("%d-%s", max(0, whole(counter)+one[int64](l, 1, 1, 1, 0, -1)), life), one(l, "1|", "4|1"), !l.in(4)}
}

// kinds are those of mend whose judgement needs nothing more.
var kinds = []string{
	"no_body", "nowhere", "waits_claimed", "claimed_no_body", "claimed_twice", "alive_and_dead", "no_letter", "unlisted_letter", "stray_attempts",
	"no_deadline", "no_claim", "no_expiry", "no_tombstone", "stray_tag", "no_end", "unlisted_end", "many_ends",
}

func (l *lane) mend() verb {
	v := &mend{one(l, kinds...), l.id(), ""}
	switch v.Kind {
	case "no_deadline", "no_claim":
		v.Name = l.claimed()
	case "no_expiry", "no_tombstone":
		v.Name = one(l, append(slices.Sorted(maps.Keys(l.o.gone)), "none")...)
	case "stray_tag":
		v.Tag = one(l, "a", "b")
	}
	return v
}

func (l *lane) page() verb {
	v := &page{head: l.epoch(), Where: one(l, store.Waiting, store.Dead), MinMs: one(l, 0, 0, l.o.now()), MaxMs: one(l, 1<<53, l.o.now()), Count: 1 + l.IntN(4)}
	if e := l.o.messages[l.id()]; e != nil && l.in(2) {
		_, v.AfterMs = e.at()
		v.AfterID = e.ID
	}
	return v
}

func (l *lane) layout() verb {
	return &ensure{one(l, 0, 1, 2), one(l, "4", "8"), one(l, "1-x", "1-x", ""), one(l, "s", "t"), "1000", "", one(l, "", "r")}
}

func (l *lane) change() verb {
	now := l.o.queue.layout
	v := &layoutChange{Epoch: one(l, now["epoch"], now["epoch"], "9-z"), Next: now["next"], Earlier: one(l, now["earlier"], now["earlier"], "4")}
	for range 1 + l.IntN(2) {
		v.Set = append(v.Set, [2]string{one(l, "next", "earlier", "retired", "dropping", "epoch"), one(l, "", "4", "2-x")})
	}
	v.Set = slices.DeleteFunc(v.Set, func(set [2]string) bool { return set == [2]string{"epoch", ""} })
	return v
}

func (l *lane) rate() verb {
	v := &rate{}
	for _, topic := range []string{"", "t", "u"}[:1+l.IntN(3)] {
		v.List = append(v.List, share{topic, one(l, 0.5, 1, 7, 1000, 250_000), one(l, 0, 1, 5, 100, -1, -3)})
	}
	return v
}

func (l *lane) jobstart() verb {
	l.jobs++
	return &jobstart{fmt.Sprintf("job%05d", l.jobs), one(l, "{}", "{\"a\":1}"), 1 + l.IntN(4)}
}

func (l *lane) jobkeep() verb {
	v := &jobkeep{fmt.Sprintf("job%05d", max(1, l.jobs-l.IntN(6))), one(l, "o", "p"), one[int64](l, 5, 500, 30_000), one(l, "", "{}", "{\"b\":2}"), false}
	v.Ends = v.Record != "" && l.in(3)
	return v
}

func (l *lane) recurring() verb {
	l.jobs++
	name, all := one(l, "a", "b", "c", "d"), l.o.queue.recurring
	return &recurring{
		name, one(l, all[name], all[name], all[name], "", "{0}"), one(l, all[""], all[""], "", "x"), one(l, "", fmt.Sprintf("{%d}", l.jobs)), fmt.Sprint("mark", l.jobs), 1 + l.IntN(4), l.in(2),
	}
}
