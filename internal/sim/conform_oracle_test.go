package sim

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// oracle is one shard as the data model of package store describes it, and the verbs as their scripts' headers do: plain
// maps, no Redis and no Lua. It is told the time, so it knows each answer to the letter.
type oracle struct {
	us       int64 // Redis' clock
	meta     map[string]string
	messages map[string]*entry // by member: waiting, in flight, dead
	gone     map[string]string // tombstones
	goneTTL  map[string]int64
	ledger   map[string]string
	claims   map[string][]claimed
	deadline map[string]int64
	holder   struct {
		instance           string // empty: nobody
		number, at, tillMs int64
	}
	routes map[int]string
	ended  map[string]int64 // the history
	ends   map[string]string
	hint   string // that the verb gave on the shard's channel
	queue  queueOracle
}

// note is a message as a producer hands it over.
type note struct{ ID, Token, Topic, Tags, Body string }

func (n note) encode() string { return string(message.Encode(n.Token, n.headed(nil))) }

func (n note) headed(more map[string]string) *message.Message {
	m := &message.Message{Topic: n.Topic, Headers: maps.Clone(more), Body: []byte(n.Body)}
	if n.Tags != "" {
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers[message.HeaderTags] = n.Tags
	}
	return m
}

// entry is a message in the shard.
type entry struct {
	note

	where      store.Code // Waiting, InFlight, Dead
	uid        string     // the first token, where it has another one by now
	acceptedMs int64
	firstMs    int64  // of a replace with a bound: of the first one
	score      int64  // where it waits; of a dead letter, when it was due
	tries      string // as they are stored
	reason     string // of a dead letter
	diedMs     int64
}

// claimed is a message in a claim, and what its claimer was told.
type claimed struct {
	ID    string
	Score int64
	Token string
	Tries string
	Topic string
	Tags  string
}

func packed(list []claimed) string {
	var b strings.Builder
	for _, c := range list {
		fmt.Fprintf(&b, "%d:%d:%s", len(c.ID), c.Score, c.ID)
	}
	return b.String()
}

// due is when it was promised.
func (c claimed) due() int64 { return promised(c.Tries, c.Score) }

func promised(tries string, score int64) int64 {
	if at := strings.Split(tries, " "); len(at) == 5 {
		return whole(at[4])
	}
	return int64(math.Mod(float64(score), slotSize))
}

const slotSize = 1 << 42

func whole(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (e *entry) stored() string {
	headers := map[string]string{}
	if e.uid != "" {
		headers[message.HeaderUID] = e.uid
	}
	if e.firstMs != 0 {
		headers[message.HeaderFirstAt] = fmt.Sprintf("%013d", e.firstMs)
	}
	return fmt.Sprintf("%s%013d", message.FormatVersion, e.acceptedMs) + string(message.Encode(e.Token, e.headed(headers)))
}

// letter is a dead one as it is stored.
func (e *entry) letter() string {
	return fmt.Sprintf("%d:%s:%d:%s", e.score, e.tries, len(e.reason), e.reason) + e.stored()
}

// size is what Redis has to read of it.
func (e *entry) size() int64 {
	switch {
	case e == nil:
		return 0
	case e.where == store.Dead:
		return int64(len(e.letter()))
	}
	return int64(len(e.stored()))
}

// counts are failures, begun, maybe published and unknown outcomes.
func counts(tries string) (n [4]int64) {
	for i, text := range strings.Split(tries, " ") {
		if i < 4 && tries != "" {
			n[i] = whole(text)
		}
	}
	return n
}

func (e *entry) isMarked() bool { return counts(e.tries)[2] > 0 }

// carried is what outlives the message that was published, maybe, for the next one of the id.
func (e *entry) carried() string {
	if !e.isMarked() {
		return ""
	}
	n := counts(e.tries)
	return fmt.Sprintf("0 %d %d 0", n[1], n[2])
}

func (e *entry) rename(token string) {
	if e.Token == token {
		return
	}
	if e.uid == "" {
		if e.uid = e.Token; strings.ContainsFunc(e.uid, func(r rune) bool { return r < '!' || r > '~' }) {
			e.uid = hex.EncodeToString([]byte(e.uid))
		}
	}
	e.Token = token
}

func newOracle() *oracle {
	return &oracle{
		meta: map[string]string{}, messages: map[string]*entry{}, gone: map[string]string{}, goneTTL: map[string]int64{},
		ledger: map[string]string{}, claims: map[string][]claimed{}, deadline: map[string]int64{}, routes: map[int]string{},
		ended: map[string]int64{}, ends: map[string]string{}, queue: newQueueOracle(),
	}
}

func (o *oracle) now() int64 { return o.us / 1000 }

// accepts is the instant from which delays count: rounded up, so that none ends early.
func (o *oracle) accepts() int64 { return (o.us + 999) / 1000 }

func (o *oracle) count(name string, n int) {
	if n > 0 {
		was, _ := strconv.Atoi(o.meta[name])
		o.meta[name] = strconv.Itoa(was + n)
	}
}

func (o *oracle) all(where ...store.Code) (list []*entry) {
	for _, e := range o.messages {
		if slices.Contains(where, e.where) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *entry) int { return cmp.Or(cmp.Compare(a.score, b.score), strings.Compare(a.ID, b.ID)) })
	return list
}

func (o *oracle) waiting() []*entry { return o.all(store.Waiting) }

// stored is how many messages have a body: they wait or are in flight.
func (o *oracle) stored() int { return len(o.all(store.Waiting, store.InFlight)) }

func nilable[V any](m map[string]V, name string) any {
	if v, ok := m[name]; ok {
		return v
	}
	return nil
}

// gate refuses a run of another epoch, or outside its span.
func (o *oracle) gate(h head) (refused []any) {
	if epoch, ok := o.meta["epoch"]; !ok || epoch != h.Epoch {
		return []any{int64(1), o.now(), nilable(o.meta, "epoch"), nilable(o.meta, "layout")}
	}
	if h.Span != [2]int64{} && !h.isWithin(o.now()) {
		return []any{int64(2), o.now()}
	}
	return nil
}

// leave leaves a tombstone, where there is none; it lives as long as any that has been asked for.
func (o *oracle) leave(token, fate string, tillMs int64) {
	if _, ok := o.gone[token]; !ok {
		o.gone[token] = fate
	}
	o.goneTTL[token] = max(o.goneTTL[token], tillMs)
}

// tidy removes tombstones that have expired, the oldest first.
func (o *oracle) tidy(oldMs int64, most int) {
	for _, token := range lowest(o.goneTTL, min(oldMs, o.now()), most) {
		delete(o.gone, token)
		delete(o.goneTTL, token)
	}
}

// lowest are the members with the lowest scores, as a sorted set has them.
func lowest(set map[string]int64, highest int64, most int) []string {
	names := slices.SortedFunc(maps.Keys(set), func(a, b string) int { return cmp.Or(cmp.Compare(set[a], set[b]), strings.Compare(a, b)) })
	names = slices.DeleteFunc(names, func(name string) bool { return set[name] > highest })
	return names[:max(0, min(most, len(names)))]
}

func isOutbox(token string) bool { return strings.HasPrefix(token, "~") }
func isRow(token string) bool    { return isOutbox(token) && !strings.HasPrefix(token, "~~") }

// fate is what became of a row's token, over what reschedules have put in its place; inForce is the token of the message
// that is here.
func (o *oracle) fate(token string, hops int, inForce string) store.Code {
	for range hops {
		if token == inForce && inForce != "" {
			return store.EndedMoved
		}
		what, ok := o.gone[token]
		if !ok {
			what = o.ledger[token]
		}
		switch sign, next := cut(what); sign {
		case 'p':
			return store.EndedPublished
		case 'c':
			return store.EndedCancelled
		case 'C':
			return store.EndedMaybe
		case 'm':
			token = next
		default:
			return store.NotFound
		}
	}
	return store.NotFound
}

func cut(text string) (sign byte, rest string) {
	if text == "" {
		return 0, ""
	}
	return text[0], text[1:]
}

func done(isMarked bool) store.Code {
	if isMarked {
		return store.DoneMaybePublished
	}
	return store.Done
}

// ending is how the end of a message is told to its row.
func ending(isMarked bool) string {
	if isMarked {
		return "C"
	}
	return "c"
}

// remember keeps the ends of messages, in a queue that has a history, and removes what is too old or too many.
func (o *oracle) remember(h history, list ...[2]string) {
	if h.Most == 0 || len(list) == 0 {
		return
	}
	for _, end := range list {
		o.ended[end[0]], o.ends[end[0]] = o.now(), end[1]
	}
	room := (3*len(list) + 1) / 2
	old := lowest(o.ended, o.now()-h.AgeMs-1, room)
	if most := min(len(o.ended)-h.Most, room); most > len(old) {
		old = lowest(o.ended, math.MaxInt64, most)
	}
	for _, id := range old {
		delete(o.ended, id)
		delete(o.ends, id)
	}
}

func told(kind string, due any, tries, topic, detail string) string {
	return fmt.Sprintf("%s%v %d %d:%s%s", kind, due, counts(tries)[1]+1, len(topic), topic, detail)
}

// hinted tells on the channel that the head has moved earlier.
func (o *oracle) hinted(headMs, earliest int64) {
	if earliest < headMs {
		o.hint = strconv.FormatInt(earliest, 10)
	}
}

// head is the lowest score, of all that waits.
func (o *oracle) head() int64 {
	if list := o.waiting(); len(list) > 0 {
		return list[0].score
	}
	return math.MaxInt64
}

// due is the promised due time of what waits, else 0.
func (o *oracle) due(e *entry) int64 {
	if e == nil || e.where != store.Waiting {
		return 0
	}
	return promised(e.tries, e.score)
}

func isOther(topics []string, e *entry) bool {
	return len(topics) > 0 && !slices.Contains(topics, e.Topic)
}

// trace is what a schedule under an idempotency key has left, as an earlier run has told it.
var trace = regexp.MustCompile(`^s(\d+) (\d+)$`)

// earlier is the answer of an earlier run under the token, or of one whose message has ended since.
func (o *oracle) earlier(token string, due int64) (code store.Code, detail int64, ok bool) {
	what, ok := o.gone[token]
	if !ok {
		return 0, 0, false
	}
	if m := trace.FindStringSubmatch(what); m != nil {
		return store.Code(whole(m[1])), whole(m[2]), true
	}
	return store.Created, due, true
}

func (o *oracle) create(n note, due int64, tries string) {
	o.messages[n.ID] = &entry{note: n, where: store.Waiting, acceptedMs: o.accepts(), score: due, tries: tries}
}

func (v *schedule) ask(o *oracle) any {
	if refused := o.gate(v.head); refused != nil {
		return refused
	}
	second, once := v.StartMs != 0, v.OnceMs != 0
	if budget, ok := o.meta["budget"]; ok && !second && !v.Asks {
		if most, _, _ := strings.Cut(budget, " "); o.stored()+len(v.List) > int(whole(most)) {
			return []any{int64(3), o.now()}
		}
	}
	isPlain := !second && !v.Asks && !once && len(o.deadline) == 0 && len(o.all(store.Dead)) == 0
	reply, ours, fresh, bytes := []any{int64(0), o.now()}, map[string]int64{}, 0, int64(0)
	heads, left := map[string]string{}, map[string]string{}
	for _, r := range v.List {
		e, due := o.messages[r.ID], r.When.from(o.accepts())
		code, detail := store.Created, any(due)
		was, wasDue, wasHere := o.earlier(r.Token, due)
		wasHere = wasHere && (second || once && v.Leaves != "f")
		isTrace := wasHere && trace.MatchString(o.gone[r.Token])
		first, isOurs := ours[r.ID]
		switch {
		case isTrace, wasHere && (e == nil || e.where != store.Dead):
			code, detail = was, wasDue
		case isOurs && (e == nil || e.where != store.Dead):
			code, detail = store.Waiting, first
		case e != nil:
			code, detail = v.taken(o, e, r, &bytes)
		case v.Asks:
			code, detail = store.Absent, int64(0)
		default:
			tries := ""
			if second && !once {
				tries = "0 1 1 0"
			}
			o.create(r.note, due, tries)
			if once {
				left[r.Token] = fmt.Sprintf("s1 %d", due)
			}
			heads[r.ID] = strconv.FormatInt(due, 10)
			fresh++
		}
		if v.Leaves != "" && !isTrace && (code == store.Waiting || code == store.InFlight) {
			left[r.Token] = fmt.Sprintf("s%d %d", code, detail)
		}
		if ms, ok := detail.(int64); ok && code == store.Created {
			if _, ok := ours[r.ID]; !ok {
				ours[r.ID] = ms
			}
		}
		reply = append(reply, int64(code), detail)
	}
	for token, trace := range left {
		o.gone[token], o.goneTTL[token] = trace, o.now()+v.OnceMs
	}
	if o.count("scheduled", fresh); fresh > 0 {
		o.hint = heads[o.waiting()[0].ID]
	}
	if isPlain && fresh == len(v.List) {
		return []any{int64(0), o.now(), o.accepts()}
	}
	return reply
}

// taken says of a message that stands in the way where it is, and of a second run whether it is its own.
func (v *schedule) taken(o *oracle, e *entry, r request, bytes *int64) (store.Code, any) {
	second, isDead, size := v.StartMs != 0, e.where == store.Dead, int64(0)
	if isDead || second || len(v.Topics) > 0 {
		size = e.size()
	}
	if *bytes > 0 && *bytes+size > v.BytesMax {
		return store.NotLooked, int64(0)
	}
	*bytes += size
	if second && v.OnceMs == 0 {
		if e.Token == r.Token {
			if e.where == store.Waiting {
				return store.Created, o.due(e)
			}
			return store.Created, r.When.from(e.acceptedMs)
		}
		if e.acceptedMs >= v.StartMs {
			return store.Unknown, int64(0)
		}
	}
	switch {
	case isOther(v.Topics, e):
		return store.OtherTopic, int64(0)
	case isDead:
		return store.Dead, e.reason
	}
	return e.where, o.due(e)
}

func (v *replace) ask(o *oracle) any {
	if refused := o.gate(v.head); refused != nil {
		return refused
	}
	second, once := v.Run == 2, v.OnceMs != 0
	if budget, ok := o.meta["budget"]; ok && !second && !v.Asks {
		if most, _, _ := strings.Cut(budget, " "); o.stored()+len(v.List) > int(whole(most)) {
			return []any{int64(3), o.now()}
		}
	}
	reply, seen, bytes, head := []any{int64(0), o.now()}, map[string]bool{}, int64(0), o.head()
	var steps []func()
	var late []string
	earliest, replaced := int64(math.MaxInt64), 0
	for _, r := range v.List {
		e, due := o.messages[r.ID], r.When.from(o.accepts())
		if seen[r.ID] || bytes > 0 && bytes+e.size() > v.BytesMax {
			reply = append(reply, int64(store.NotLooked), int64(0))
			continue
		}
		seen[r.ID], bytes = true, bytes+e.size()
		code, detail := store.NotLooked, int64(0)
		was, wasDue, wasHere := o.earlier(r.Token, due)
		switch {
		case wasHere && (second || once && v.Leaves != "f"):
			code, detail = was, wasDue
		case e != nil && second && !once:
			if code = store.Unknown; e.Token == r.Token {
				code, detail = store.Created, o.due(e)
				if e.where != store.Waiting {
					if detail = r.When.from(e.acceptedMs); r.When.Max > 0 && e.firstMs != 0 {
						detail = min(detail, e.firstMs+r.When.Max)
					}
				}
			}
		case e != nil && isOther(v.Topics, e):
			code = store.OtherTopic
		case e != nil && e.where == store.InFlight:
			if code = store.InFlight; v.Leaves != "" {
				late = append(late, r.Token)
			}
		case e == nil && v.Asks:
			code = store.Absent
		default:
			first := int64(0)
			if r.When.Max > 0 {
				if first = o.accepts(); e != nil && e.where == store.Waiting && e.firstMs != 0 {
					first = e.firstMs
				}
				due = min(due, first+r.When.Max)
			}
			if code, detail = store.Created, due; e != nil {
				code = store.Replaced
				replaced++
			}
			steps = append(steps, func() { v.put(o, e, r, code, due, first) })
			earliest = min(earliest, due)
		}
		reply = append(reply, int64(code), detail)
	}
	for _, step := range steps {
		step()
	}
	for _, token := range late {
		o.gone[token], o.goneTTL[token] = "s3 0", o.now()+v.OnceMs
	}
	o.count("scheduled", len(steps))
	o.count("replaced", replaced)
	o.hinted(head, earliest)
	return reply
}

// put creates the message in the place of an old one.
func (v *replace) put(o *oracle, old *entry, r request, code store.Code, due, first int64) {
	tries := ""
	if v.Run == 2 && v.OnceMs == 0 {
		tries = "0 1 1 0" // Its first life may have ended already.
	}
	if old != nil {
		if tries == "" {
			tries = old.carried()
		}
		fate := "ended"
		if isOutbox(old.Token) {
			fate = ending(old.isMarked())
		}
		o.leave(old.Token, fate, o.now()+v.TombMs)
		if isRow(old.Token) {
			o.ledger[old.Token] = ending(old.isMarked()) + r.ID
		}
	}
	if v.OnceMs != 0 {
		o.gone[r.Token], o.goneTTL[r.Token] = fmt.Sprintf("s%d %d", code, due), o.now()+v.OnceMs
	}
	o.create(r.note, due, tries)
	o.messages[r.ID].firstMs = first
}

func (v *cancel) ask(o *oracle) any {
	if refused := o.gate(v.head); refused != nil {
		return refused
	}
	reply, bytes, tags, cancelled := []any{int64(0), o.now()}, int64(0), 0, 0
	for i, r := range v.List {
		code := store.NotLooked
		if len(v.List) > 1 {
			bytes += o.messages[r.ID].size()
		}
		if i == 0 || tags <= 200 && bytes <= v.BytesMax {
			e := o.messages[r.ID]
			if code = v.one(o, r); e != nil && o.messages[r.ID] == nil {
				cancelled++
				tags += strings.Count(e.Tags, ",")
				if e.Tags != "" {
					tags++
				}
			}
			if leaves(v.Run, v.Last, code) {
				if v.Run == 4 {
					delete(o.gone, r.Token)
				}
				o.leave(r.Token, strconv.Itoa(int(code)), o.now()+v.TombMs)
			}
		}
		reply = append(reply, int64(code), int64(0))
	}
	if v.Purge {
		o.count("purged", cancelled)
	} else {
		o.count("cancelled", cancelled)
	}
	return reply
}

// leaves tells whether a run of a cancel or reschedule leaves its answer, whatever that is.
func leaves(run int, isLast bool, code store.Code) bool {
	return run > 2 && code != store.NotLooked && (code != store.NotFound || isLast)
}

func (v *cancel) one(o *oracle, r target) store.Code {
	if was, ok := o.gone[r.Token]; ok && (v.Run == 2 || v.Run == 3) {
		return store.Code(whole(was))
	}
	e := o.messages[r.ID]
	inForce := ""
	if e != nil {
		inForce = e.Token
	}
	if r.Row != "" && inForce != r.Row && (!v.Never || e == nil || e.uid != r.Row) {
		e = nil
	}
	switch {
	case r.Life != "" && inForce != r.Life, v.Purge && (e == nil || e.where != store.Dead):
		return store.NotFound
	case v.Tag != "" && (o.messages[r.ID] == nil || !slices.Contains(strings.Split(o.messages[r.ID].Tags, ","), v.Tag)):
		return store.NotFound
	case e != nil && isOther(v.Topics, e):
		return store.OtherTopic
	case e != nil && e.where == store.InFlight:
		return store.InFlight
	}
	if e == nil {
		code := store.NotFound
		if r.Row != "" {
			code = o.fate(r.Row, 8, inForce)
		}
		if v.Never && code == store.NotFound && strings.HasPrefix(o.gone[r.Row], "s1 ") {
			code = store.EndedPublished
		}
		if code == store.NotFound && r.Row != "" && v.Last {
			o.tidy(v.OldMs, 8)
			o.leave(r.Row, "n", o.now()+v.TombMs)
		}
		return code
	}
	kind, due := "c", e.score
	if v.Purge {
		kind = "u"
	}
	if e.where == store.Waiting {
		due = o.due(e)
	}
	o.remember(v.history, [2]string{r.ID, told(kind, due, e.tries, e.Topic, e.reason)})
	o.tidy(v.OldMs, 8)
	code, how := done(e.isMarked()), ending(e.isMarked())
	if r.Row != "" {
		o.leave(r.Row, how, o.now()+v.TombMs)
	}
	delete(o.messages, r.ID)
	o.leave(r.Token, strconv.Itoa(int(code)), o.now()+v.TombMs)
	if isOutbox(e.Token) {
		o.leave(e.Token, how, o.now()+v.TombMs)
	} else {
		o.leave(e.Token, "ended", o.now()+v.TombMs)
	}
	if isRow(e.Token) && e.Token != r.Row {
		o.ledger[e.Token] = how + r.ID
	}
	return code
}

func (v *reschedule) ask(o *oracle) any {
	if refused := o.gate(v.head); refused != nil {
		return refused
	}
	reply, bytes, head, earliest := []any{int64(0), o.now()}, int64(0), o.head(), int64(math.MaxInt64)
	for i, r := range v.List {
		code, due := store.NotLooked, int64(0)
		if len(v.List) > 1 {
			bytes += o.messages[r.ID].size()
		}
		if i == 0 || bytes <= v.BytesMax {
			var isMoved bool
			if code, due, isMoved = v.one(o, r); isMoved {
				earliest = min(earliest, due)
			}
			if leaves(v.Run, v.Last, code) {
				o.gone[r.Token], o.goneTTL[r.Token] = fmt.Sprintf("%d %d", code, due), o.now()+v.TombMs
			}
		}
		reply = append(reply, int64(code), due)
	}
	o.hinted(head, earliest)
	return reply
}

var moved = regexp.MustCompile(`^(\d+) (\d+)$`)

func (v *reschedule) one(o *oracle, r move) (code store.Code, due int64, isMoved bool) {
	if m := moved.FindStringSubmatch(o.gone[r.Token]); m != nil && (v.Run == 2 || v.Run == 3) {
		return store.Code(whole(m[1])), whole(m[2]), false
	}
	e := o.messages[r.ID]
	if e != nil && r.Row != "" && e.Token == r.Row { // Its own effect.
		if due = r.When.Ms; e.where == store.Waiting {
			due = o.due(e)
		}
		return done(e.isMarked()), due, false
	}
	if e != nil && r.Row != "" && e.Token != r.Target {
		e = nil
	}
	switch {
	case r.Life != "" && (e == nil || e.Token != r.Life), v.Redrive && (e == nil || e.where != store.Dead):
		return store.NotFound, 0, false
	case e != nil && isOther(v.Topics, e):
		return store.OtherTopic, 0, false
	case e != nil && e.where == store.InFlight:
		return store.InFlight, 0, false
	case e == nil:
		code, due = v.missing(o, r)
		return code, due, false
	}
	own := e.score // of a dead letter
	if e.where == store.Waiting {
		own = o.due(e)
	}
	if due = r.When.from(o.accepts()); r.When.Mode == 'b' {
		due = max(0, own+r.When.Ms)
	}
	code, was, inForce := done(e.isMarked()), e.Token, r.Token
	switch {
	case r.Row != "":
		inForce = r.Row
	case isOutbox(was):
		inForce = was
	}
	o.tidy(v.OldMs, 8)
	n := counts(e.tries)
	switch {
	case e.where == store.Dead:
		o.count("redriven", 1)
		if e.tries = ""; n[1] > 0 {
			e.tries = fmt.Sprintf("0 %d %d 0", n[1], n[2])
		}
	case e.tries != "":
		e.tries = fmt.Sprintf("%d %d %d %d", n[0], n[1], n[2], n[3]) // A new promise.
	}
	e.where, e.score, e.reason, e.diedMs = store.Waiting, due, "", 0
	e.rename(inForce)
	o.gone[r.Token], o.goneTTL[r.Token] = fmt.Sprintf("%d %d", code, due), o.now()+v.TombMs
	for _, ended := range []string{was, r.Target} {
		if ended != "" && ended != inForce {
			fate := "ended"
			if isOutbox(ended) {
				fate = "m" + inForce
			}
			o.leave(ended, fate, o.now()+v.TombMs)
		}
	}
	if r.Row == "" && isRow(was) {
		o.ledger[was] = fmt.Sprintf("d%d:%s", due, r.ID)
		if code == store.DoneMaybePublished {
			o.ledger[was] = fmt.Sprintf("d+%d:%s", due, r.ID)
		}
	}
	if !v.Redrive {
		o.count("rescheduled", 1)
	}
	return code, due, true
}

// missing answers where the row's message is not here: it has ended, or has not come.
func (v *reschedule) missing(o *oracle, r move) (store.Code, int64) {
	if r.Row == "" {
		return store.NotFound, 0
	}
	if own := o.fate(r.Row, 9, ""); own != store.NotFound { // This call was done, and the message has ended since.
		return done(own != store.EndedCancelled), r.When.Ms // Nobody knows whether a copy was out before the one that was published.
	}
	code := o.fate(r.Target, 9, "")
	if code == store.NotFound && v.Last {
		if _, ok := o.gone[r.Target]; !ok {
			o.gone[r.Target] = "m" + r.Row
		}
		o.goneTTL[r.Target] = o.now() + v.TombMs
	}
	return code, 0
}
