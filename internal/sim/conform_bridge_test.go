package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// What a poller, the bridge's outbox and the layout ask of a shard, in the oracle.

func (v *claim) ask(o *oracle) any {
	now := o.now()
	if _, ok := o.meta["epoch"]; !ok {
		return []any{int64(4), now, int64(0), ""}
	}
	token, holder := v.token(), o.held()
	if o.holder.instance != "" && o.holder.instance != v.Instance && holder != v.Seize {
		return []any{int64(1), now, o.holder.tillMs - now, holder}
	}
	var before int64
	if o.holder.instance == v.Instance {
		before = o.holder.number
	}
	isForeign, strays := false, []any{}
	for _, other := range lowest(o.deadline, math.MaxInt64, len(o.deadline)) {
		if !strings.HasPrefix(other, v.Instance+"|") {
			isForeign = true
		} else if other != token && !slices.Contains(v.Live, other) {
			strays = append(strays, other)
		}
	}
	list, again := o.claims[token]
	isOutdated := !again && v.Number <= before
	o.tidy(v.OldMs, 1000)
	o.holder.instance, o.holder.number, o.holder.at, o.holder.tillMs = v.Instance, before, now, now+v.LeaseMs
	for _, live := range v.Live {
		if _, ok := o.deadline[live]; ok {
			o.deadline[live] = now + v.TimeoutMs
		}
	}
	switch {
	case isForeign:
		return []any{int64(2), now, int64(0), ""}
	case isOutdated:
		return []any{int64(3), now, int64(0), ""}
	}
	o.holder.number = max(before, v.Number)
	more := int64(0)
	if !again {
		var found int
		if list, found = v.take(o); len(list) > 0 {
			o.claims[token] = list
			if len(list) < found || len(list) == v.Max {
				more = 1
			}
		}
	}
	if len(list) > 0 {
		o.deadline[token] = now + v.TimeoutMs
	}
	tried := len(list) > 0 && slices.ContainsFunc(o.all(store.Waiting, store.InFlight), func(e *entry) bool { return e.tries != "" })
	tries, bodies := []any{}, []any{}
	for _, c := range list {
		e := o.messages[c.ID]
		bodies = append(bodies, e.stored())
		if tried && e.tries == "" {
			tries = append(tries, nil)
		} else if tried {
			tries = append(tries, e.tries)
		}
	}
	if v.Slot > 0 && len(o.slot(v.Slot)) > 0 {
		more = 1
	}
	for _, slot := range v.Free {
		if len(o.slot(slot)) == 0 {
			delete(o.routes, slot)
		}
	}
	return []any{int64(0), now, int64(0), more, o.next(), packed(list), tries, bodies, o.meta["epoch"], strays, before}
}

// take takes what is due from the slot, as much as may be.
func (v *claim) take(o *oracle) (list []claimed, found int) {
	bytes, isFull := int64(0), false
	for _, e := range o.slot(v.Slot) {
		if e.score-int64(v.Slot)*slotSize > min(o.now(), slotSize-1) || found == v.Max {
			break
		}
		found++
		if isFull = isFull || len(list) > 0 && bytes+e.size() > v.BytesMax; isFull {
			continue
		}
		bytes += e.size()
		e.where = store.InFlight
		list = append(list, claimed{e.ID, e.score, e.Token, e.tries, e.Topic, e.Tags})
	}
	return list, found
}

// slot are the messages that wait in it; 0 are those that are not parked.
func (o *oracle) slot(number int) []*entry {
	return slices.DeleteFunc(o.waiting(), func(e *entry) bool { return int(e.score/slotSize) != number })
}

// next is when the first is due of what is not parked.
func (o *oracle) next() int64 {
	if list := o.slot(0); len(list) > 0 {
		return list[0].score
	}
	return -1
}

// held is the holder as it is stored, once its lease is over nothing.
func (o *oracle) held() string {
	if o.holder.instance != "" && o.now() > o.holder.tillMs {
		o.holder.instance = ""
	}
	if o.holder.instance == "" {
		return ""
	}
	return fmt.Sprintf("%s|%d|%d", o.holder.instance, o.holder.number, o.holder.at)
}

func (v *settle) ask(o *oracle) any {
	claim, isHere := o.claims[v.Token]
	after := v.after()
	if !isHere || packed(claim) != packed(v.List) {
		if v.Repeated {
			if isHere && len(after) > 0 && packed(claim) == packed(after) {
				return int64(0)
			}
			return int64(1)
		}
		o.count("stale_settles", 1)
		return int64(1)
	}
	o.remember(v.history, v.ends()...)
	if o.claims[v.Token] = after; len(after) == 0 {
		delete(o.claims, v.Token)
		delete(o.deadline, v.Token)
	}
	for i, c := range v.List {
		e, verdict := o.messages[c.ID], v.Verdicts[i]
		switch verdict.Verb {
		case "ack", "drop":
			delete(o.messages, c.ID)
			v.removed(o, c, verdict.Verb)
		case "retry":
			e.where, e.score, e.tries = store.Waiting, o.accepts()+verdict.DelayMs, fmt.Sprintf("%s %d", verdict.Tries, c.due())
			o.count("retried", 1)
		case "release", "park":
			e.where, e.score = store.Waiting, c.due()+int64(verdict.Slot)*slotSize
			switch verdict.Tries {
			case "":
			case "-":
				e.tries = ""
			default:
				e.tries = verdict.Tries
			}
			o.count(map[string]string{"release": "released", "park": "parked"}[verdict.Verb], 1)
		case "bury":
			e.where, e.score, e.tries, e.reason, e.diedMs = store.Dead, c.due(), verdict.Tries, verdict.Reason, o.now()
			o.count("dead_lettered", 1)
		}
	}
	for _, p := range v.parks() {
		v.route(o, p)
	}
	return int64(0)
}

// removed leaves what keeps late writers of a row from bringing its message back.
func (v *settle) removed(o *oracle, c claimed, verb string) {
	isMarked, fate := counts(c.Tries)[2] > 0, "p"
	if verb == "drop" {
		fate = ending(isMarked)
		o.count("dropped", 1)
	} else {
		o.count("published", 1)
		if isMarked {
			o.count("suspected_duplicates", 1)
		}
	}
	switch {
	case isRow(c.Token) && v.Ledger:
		o.ledger[c.Token] = fate + c.ID
	case isOutbox(c.Token):
		o.gone[c.Token] = fate
		o.goneTTL[c.Token] = max(o.goneTTL[c.Token], o.now()+v.TombMs)
	}
}

// route says in which slot it is: the same keeps since when, unless that was by an operator's will.
func (v *settle) route(o *oracle, verdict verdict) {
	name := fmt.Sprintf(" %d:%s", len(verdict.Route), verdict.Route)
	since, rest, _ := strings.Cut(o.routes[verdict.Slot], " ")
	reason, isSame := strings.CutPrefix(" "+rest, name)
	if since == "" || !isSame || reason == "paused" || reason == "rate" {
		if since = strconv.FormatInt(verdict.SinceMs, 10); verdict.SinceMs == 0 {
			since = strconv.FormatInt(o.now(), 10)
		}
	}
	o.routes[verdict.Slot] = since + name + verdict.Reason
}

func (v *mark) ask(o *oracle) any {
	looked, marked, bytes := 0, 0, int64(0)
	for _, r := range v.List {
		e := o.messages[r.ID]
		if e != nil && e.where == store.Dead {
			e = nil
		}
		if bytes += e.size(); looked > 0 && bytes > v.BytesMax {
			break
		}
		looked++
		if e != nil && e.Token == r.Token {
			e.again(0)
			marked++
		}
	}
	if v.Counts && marked > 0 {
		o.count("stale_settles", 1)
	}
	return []any{int64(looked), int64(marked)}
}

// again marks it as published, maybe.
func (e *entry) again(begun int64) {
	n, parts := counts(e.tries), strings.Split(e.tries, " ")
	e.tries = fmt.Sprintf("%d %d %d %d", n[0], n[1]+begun, n[2]+1, n[3])
	if len(parts) == 5 {
		e.tries += " " + parts[4]
	}
}

func (v *reclaim) ask(o *oracle) any {
	if o.held(); o.holder.instance != v.Instance {
		return []any{int64(0), int64(0)}
	}
	var chosen []string
	switch {
	case v.Stray != "":
		if strings.HasPrefix(v.Stray, v.Instance+"|") {
			chosen = []string{v.Stray}
		}
	case v.Foreign:
		for _, token := range lowest(o.deadline, math.MaxInt64, len(o.deadline)) {
			if !strings.HasPrefix(token, v.Instance+"|") {
				chosen = append(chosen, token)
			}
		}
	default:
		chosen = lowest(o.deadline, o.now(), 2)
	}
	if len(chosen) == 0 {
		return []any{int64(0), int64(0)}
	}
	list := o.claims[chosen[0]]
	delete(o.claims, chosen[0])
	delete(o.deadline, chosen[0])
	for _, c := range list {
		e := o.messages[c.ID]
		e.where, e.score = store.Waiting, c.Score
		e.again(1)
	}
	o.count("reclaimed", len(list))
	return []any{int64(len(list)), flagged(len(chosen) > 1)}
}

func (v *confirm) ask(o *oracle) any { return flagged(len(o.claims[v.Token]) > 0) }

func flagged(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

func (v *handover) ask(o *oracle) any {
	if o.held(); o.holder.instance != v.Instance {
		return int64(0)
	}
	o.holder.instance, o.hint = "", "handover"
	return int64(1)
}

func (v *put) ask(o *oracle) any {
	if refused := o.gate(v.head); refused != nil {
		return refused
	}
	reply, ours, bytes, head := []any{int64(0), o.now()}, map[string]row{}, int64(0), o.head()
	born, earliest, fresh := int64(math.MinInt64), int64(math.MaxInt64), 0
	if text, ok := o.meta["born"]; ok {
		born = whole(text)
	}
	for _, r := range v.List {
		e := o.messages[r.ID]
		mine, isOurs := ours[r.ID]
		_, isGone := o.gone[r.Token]
		_, isSettled := o.ledger[r.Token]
		code, detail := store.NotLooked, any(int64(0))
		isKnown := (isGone || isSettled) && mine.Token != r.Token || e != nil && e.where == store.Dead
		if isKnown {
			code, detail, isKnown = v.known(o, e, r, &bytes)
		}
		switch {
		case isKnown:
		case isOurs:
			if code, detail = store.Waiting, mine.DueMs; mine.Token == r.Token {
				code = store.Mine
			}
		case v.Asks && e == nil:
			code = store.Absent
			if r.isOlder(born) {
				detail = int64(1)
			}
		case e != nil:
			code, detail, _ = v.known(o, e, r, &bytes)
		default:
			code, detail = store.Created, r.DueMs
			tries := ""
			isDue := r.DueMs <= o.now()+2000
			if r.Mark == "1" || isDue && (r.Mark == "due" || r.isOlder(born)) {
				tries = "0 1 1 0"
			}
			o.create(r.note, r.DueMs, tries)
			if r.UntilMs != 0 {
				o.gone[r.Token], o.goneTTL[r.Token] = "c", r.UntilMs
			}
			ours[r.ID], earliest = r, min(earliest, r.DueMs)
			fresh++
		}
		reply = append(reply, int64(code), detail)
	}
	o.count("scheduled", fresh)
	o.hinted(head, earliest)
	return reply
}

// isOlder says that the row was made before the shard.
func (r row) isOlder(born int64) bool {
	since, err := strconv.ParseInt(r.Mark, 10, 64)
	return err == nil && r.Mark != "0" && r.Mark != "1" && since < born
}

// known says what became of the row's token: its message is here or has ended, or another one is in the way.
func (v *put) known(o *oracle, e *entry, r row, bytes *int64) (store.Code, any, bool) {
	if *bytes > 0 && *bytes+e.size() > v.BytesMax {
		return store.NotLooked, int64(0), true
	}
	*bytes += e.size()
	token, isMoved := r.Token, false
	for range 8 {
		if e != nil && e.Token == token {
			return store.Mine, o.due(e), true
		}
		what, ok := o.gone[token]
		if !ok {
			what = o.ledger[token]
		}
		sign, next := cut(what)
		if sign == 'm' {
			token, isMoved = next, true
			continue
		}
		if code := ends[sign]; code != 0 {
			return code, int64(0), true
		}
		break
	}
	switch {
	case isMoved:
		return store.EndedMoved, int64(0), true
	case e == nil:
		return 0, nil, false
	case e.where == store.Dead:
		return store.Dead, e.reason, true
	}
	return e.where, o.due(e), true
}

// ends are the answers for a row whose token has ended so.
var ends = map[byte]store.Code{'p': store.EndedPublished, 'c': store.EndedCancelled, 'n': store.EndedCancelled, 'C': store.EndedMaybe}

func (v *renew) ask(o *oracle) any {
	if refused := o.gate(v.head); refused != nil {
		return refused
	}
	reply, bytes, head, earliest, renewed := []any{int64(0), o.now()}, int64(0), o.head(), int64(math.MaxInt64), 0
	for i, r := range v.List {
		code := store.NotLooked
		if e := o.messages[r.ID]; e != nil && e.where != store.Dead {
			bytes += e.size()
		}
		if i == 0 || bytes <= v.BytesMax {
			var isRenewed bool
			if code, isRenewed = v.one(o, r); isRenewed {
				earliest = min(earliest, r.DueMs)
				renewed++
			}
		}
		reply = append(reply, int64(code), r.DueMs)
	}
	o.count("scheduled", renewed)
	o.count("replaced", renewed)
	o.hinted(head, earliest)
	return reply
}

func (v *renew) one(o *oracle, r row) (code store.Code, isRenewed bool) {
	e := o.messages[r.ID]
	if e != nil && e.where == store.Dead {
		e = nil
	}
	what, ok := o.gone[r.Token]
	if !ok {
		what = o.ledger[r.Token]
	}
	sign, _ := cut(what)
	switch {
	case e != nil && e.Token == r.Token && e.isMarked():
		return store.DoneMaybePublished, false
	case e != nil && e.Token == r.Token:
		return store.Mine, false
	case sign == 'm':
		return store.EndedMoved, false
	case ends[sign] != 0:
		return ends[sign], false
	case e == nil || e.Token != r.Before:
		return store.NotFound, false
	case e.where == store.InFlight:
		return store.InFlight, false
	}
	tries := e.carried()
	if tries == "" && (r.Mark == "1" || r.Mark == "due" && r.DueMs <= o.now()+2000) {
		tries = "0 1 1 0"
	}
	o.create(r.note, r.DueMs, tries)
	o.leave(r.Before, "m"+r.Token, o.now()+v.TombMs)
	if tries != "" {
		return store.DoneMaybePublished, true
	}
	return store.Replaced, true
}

func (v *remove) ask(o *oracle) any {
	found, looked, bytes := 0, 0, int64(0)
	var steps []func()
	for _, r := range v.List {
		e := o.messages[r.ID]
		if e != nil && e.where == store.Dead {
			e = nil
		}
		if bytes > 0 && bytes+e.size() > v.BytesMax {
			break
		}
		bytes += e.size()
		looked++
		if e == nil || e.Token != r.Token || e.where != store.Waiting {
			continue
		}
		found++
		steps = append(steps, func() {
			if r.Fate == "c" {
				o.remember(v.history, [2]string{r.ID, told("c", "", e.tries, e.Topic, "")})
			}
			delete(o.messages, r.ID)
			o.gone[r.Token], o.goneTTL[r.Token] = r.Fate, o.now()+v.TombMs
		})
	}
	for _, step := range steps {
		step()
	}
	o.count("cancelled", found)
	return []any{int64(found), int64(looked)}
}

func (v *forget) ask(o *oracle) any {
	n := int64(0)
	for _, r := range v.List {
		if entry, ok := o.ledger[r.Token]; !ok || entry != r.Entry {
			continue
		}
		delete(o.ledger, r.Token)
		n++
		if r.Entry[0] == 'd' { // What was moved lives on.
			continue
		}
		if _, ok := o.gone[r.Token]; !ok {
			o.gone[r.Token] = r.Entry[:1]
		}
		o.goneTTL[r.Token] = o.now() + v.TombMs
	}
	return n
}

func (v *fence) ask(o *oracle) any {
	epoch, isHere := o.meta["epoch"]
	if !isHere && !v.Makes {
		return []any{o.now(), "", ""}
	}
	content, hasContent := o.meta["layout"]
	counter, life, _ := strings.Cut(epoch, "-")
	newCounter, newLife, _ := strings.Cut(v.Epoch, "-")
	isOlder := isHere && life == newLife && epoch != v.Epoch && whole(counter) >= whole(newCounter)
	if isOlder || epoch == v.Epoch && hasContent {
		return []any{o.now(), epoch, content}
	}
	delete(o.meta, "drained")
	o.meta["epoch"], o.meta["layout"] = v.Epoch, v.Content
	if !isHere {
		o.meta["born"] = strconv.FormatInt(o.now(), 10)
	}
	return []any{o.now(), v.Epoch, v.Content}
}

func (v *drained) ask(o *oracle) any {
	if epoch, ok := o.meta["epoch"]; !ok || epoch != v.Epoch || o.meta["redriven"]+" "+o.meta["replaced"] != v.Before {
		return []any{o.now(), int64(0)}
	}
	o.meta["drained"] = fmt.Sprintf("%s %d", v.Epoch, o.now())
	return []any{o.now(), int64(1)}
}

func (v *drop) ask(o *oracle) any {
	if len(o.messages)+len(o.claims)+len(o.ledger) > 0 {
		return int64(0)
	}
	fresh := newOracle()
	fresh.us, fresh.queue = o.us, o.queue
	*o = *fresh
	return int64(1)
}

func (v *budget) ask(o *oracle) any {
	if _, ok := o.meta["epoch"]; !ok {
		return int64(0)
	}
	if delete(o.meta, v.Field); v.Value != "" {
		o.meta[v.Field] = v.Value
	}
	return int64(1)
}

func (v *touch) ask(o *oracle) any { _, ok := o.meta["epoch"]; return flagged(ok) }

func (v *mend) ask(*oracle) any { return int64(0) }

func (v *get) ask(o *oracle) any {
	if refused := o.gate(v.head); refused != nil {
		return refused
	}
	e, end, endedMs := o.messages[v.ID], "", int64(0)
	if v.Most > 0 {
		end, endedMs = o.ends[v.ID], o.ended[v.ID]
	}
	answer := func(code store.Code, at int64, tries, found, route string) any {
		return []any{int64(0), o.now(), int64(code), at, tries, found, route, end, endedMs}
	}
	switch {
	case e == nil:
		return answer(store.NotFound, 0, "", "", "")
	case e.where == store.Dead:
		return answer(store.Dead, e.diedMs, "", e.letter(), "")
	case e.where == store.Waiting && e.score >= slotSize:
		return answer(e.where, e.score, e.tries, e.stored(), o.routes[int(e.score/slotSize)])
	case e.where == store.Waiting:
		return answer(e.where, e.score, e.tries, e.stored(), "")
	}
	return answer(e.where, e.score, e.tries, e.stored(), "")
}

func (v *stats) ask(o *oracle) any {
	due, parked := int64(0), int64(0)
	for _, e := range o.waiting() {
		due += flagged(e.score <= o.now())
		parked += flagged(e.score >= slotSize)
	}
	if o.next() < 0 {
		due = 0
	}
	o.held()
	return []any{
		o.now(), int64(len(o.waiting())), due, int64(o.stored()), int64(len(o.all(store.Dead))), int64(len(o.deadline)), o.next(),
		o.holder.instance, flat(o.meta), int64(len(o.ledger)), parked,
	}
}

// flat is a hash as it is moved, in the order of its fields.
func flat(m map[string]string) []any {
	list := []any{}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, name, m[name])
	}
	return list
}

func (v *parked) ask(o *oracle) any {
	found, at := []any{}, map[int64]int{}
	for _, e := range o.waiting() {
		slot := e.score / slotSize
		if slot < int64(v.From) {
			continue
		}
		if _, ok := at[slot]; !ok {
			if len(found) == v.Most {
				break
			}
			at[slot] = len(found)
			found = append(found, []any{slot, int64(0), e.score - slot*slotSize, o.routes[int(slot)]})
		}
		entry, _ := found[at[slot]].([]any)
		entry[1] = entry[1].(int64) + 1 //nolint:forcetypeassert // it is one
	}
	return found
}

// at is where a message is listed, and by which score.
func (e *entry) at() (store.Code, int64) {
	switch {
	case e == nil:
		return store.NotFound, 0
	case e.where == store.InFlight:
		return store.InFlight, 0
	case e.where == store.Dead:
		return store.Dead, e.diedMs
	}
	return store.Waiting, e.score
}

func (v *page) ask(o *oracle) any {
	if refused := o.gate(v.head); refused != nil {
		return refused
	}
	set := map[string]int64{}
	for _, e := range o.messages {
		if where, score := e.at(); where == v.Where {
			set[e.ID] = score
		}
	}
	list := []any{}
	for _, id := range lowest(set, math.MaxInt64, len(set)) {
		score := set[id]
		isAfter := v.AfterID == "" || score > v.AfterMs || score == v.AfterMs && id > v.AfterID
		if score >= v.MinMs && score < v.MaxMs && isAfter && len(list) < 2*v.Count {
			list = append(list, id, score)
		}
	}
	return []any{int64(0), o.now(), list}
}

func (v *tagged) ask(o *oracle) any {
	if refused := o.gate(v.head); refused != nil {
		return refused
	}
	list := []any{}
	for _, id := range slices.Sorted(maps.Keys(o.messages)) {
		if e := o.messages[id]; slices.Contains(strings.Split(e.Tags, ","), v.Tag) && id > v.AfterID && len(list) < 3*v.Count {
			where, score := e.at()
			list = append(list, id, int64(where), score)
		}
	}
	return []any{int64(0), o.now(), list}
}

func (v *members) ask(o *oracle) any {
	if refused := o.gate(v.head); refused != nil {
		return refused
	}
	list, bytes := []any{}, int64(0)
	for _, id := range v.IDs {
		where, score := o.messages[id].at()
		list = append(list, id, int64(where), score)
	}
	for _, e := range o.all(store.Waiting, store.InFlight) {
		if !v.Pages {
			break
		}
		bytes += int64(len(e.ID)) + e.size()
		where, score := e.at()
		isIn := where == store.InFlight || score >= slotSize || score >= v.MinMs && score < v.MaxMs
		id := e.ID[strings.IndexByte(e.ID, 0)+1:]
		if isIn && (v.Topic == "" || e.Topic == v.Topic) && (v.Not == "" || !strings.HasPrefix(e.Token, v.Not)) && strings.HasPrefix(id, v.Prefix) {
			list = append(list, e.ID, int64(where), score)
		}
	}
	return []any{int64(0), o.now(), "", "0", bytes, list}
}

func (v *rows) ask(o *oracle) any {
	ids := v.Rest
	if len(ids) == 0 {
		for _, e := range o.waiting() {
			ids = append(ids, e.ID)
		}
	}
	list, rest, bytes := []any{}, []any{}, int64(0)
	for i, id := range ids {
		e, size := o.messages[id], int64(0)
		isThere := e != nil && e.where != store.Dead
		if isThere {
			size = e.size()
		}
		if bytes > 0 && bytes+size > v.BytesMax {
			for _, id := range ids[i:] {
				rest = append(rest, id)
			}
			break
		}
		if bytes += size; isThere && isRow(e.Token) {
			list = append(list, id, e.Token)
		}
	}
	return []any{"0", bytes, list, rest}
}

func (v *scan) ask(o *oracle) any {
	list, bytes := []any{}, int64(0)
	for _, e := range o.all(store.Waiting, store.InFlight) {
		list, bytes = append(list, e.ID), bytes+int64(len(e.ID))+e.size()
	}
	return []any{"0", bytes, list}
}

// keys are the shard's keys, as they must be.
func (o *oracle) keys() map[string]map[string]string {
	all := map[string]map[string]string{}
	put := func(key, name string, value any) {
		if all[key] == nil {
			all[key] = map[string]string{}
		}
		all[key][name] = fmt.Sprint(value)
	}
	for id, e := range o.messages {
		where, score := e.at()
		if where == store.Waiting {
			put("due", id, score)
		}
		if where == store.Dead {
			put("dead", id, score)
			put("deadmsg", id, e.letter())
		} else {
			put("msg", id, e.stored())
			if e.tries != "" {
				put("attempts", id, e.tries)
			}
		}
		for tag := range strings.SplitSeq(e.Tags, ",") {
			if tag != "" {
				put("tags", tag+"\x00"+id, 0)
			}
		}
	}
	for token, list := range o.claims {
		put("claims", token, packed(list))
	}
	for slot, route := range o.routes {
		put("routes", strconv.Itoa(slot), route)
	}
	for key, set := range map[string]map[string]int64{"gonettl": o.goneTTL, "deadlines": o.deadline, "ended": o.ended} {
		for name, score := range set {
			put(key, name, score)
		}
	}
	for key, hash := range map[string]map[string]string{"gone": o.gone, "settled": o.ledger, "meta": o.meta, "ends": o.ends} {
		for name, value := range hash {
			put(key, name, value)
		}
	}
	if holder := o.held(); holder != "" {
		put("holder", "", holder)
	}
	o.queue.keys(o.now(), put)
	return all
}
