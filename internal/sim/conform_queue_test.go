package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// queueOracle is what a queue has beside its shards.
type queueOracle struct {
	layout    map[string]string
	instances map[string]int64
	paused    map[string]string
	jobs      map[string]*queueJob
	open      []string // jobs that have not ended, in their order
	rates     map[string]float64
	once      *once
	turns     turnsRecord
	recurring map[string]string
	declared  declared
}

// declared are the declarations of queues, and which these are.
type declared struct{ revision, text string }

// turnsRecord is the record of a key's turns.
type turnsRecord struct {
	text   string
	tillMs int64
}

type queueJob struct {
	record, owner string
	tillMs        int64
}

// once is the record of a request under an idempotency key.
type once struct {
	state, owner, request, plan, answer string
	leaseMs, tillMs                     int64
}

func newQueueOracle() queueOracle {
	return queueOracle{
		layout: map[string]string{}, instances: map[string]int64{}, paused: map[string]string{}, jobs: map[string]*queueJob{}, rates: map[string]float64{},
		recurring: map[string]string{},
	}
}

// record is the request's, until its time is over.
func (q *queueOracle) record(nowMs int64) *once {
	if q.once != nil && nowMs > q.once.tillMs {
		q.once = nil
	}
	return q.once
}

// turn is the record of turns, until its time is over.
func (q *queueOracle) turn(nowMs int64) string {
	if nowMs > q.turns.tillMs {
		q.turns = turnsRecord{}
	}
	return q.turns.text
}

func (q *queueOracle) keys(nowMs int64, put func(key, name string, value any)) {
	for name, value := range q.layout {
		put("layout", name, value)
	}
	for name, at := range q.instances {
		put("instances", name, at)
	}
	for name, value := range q.paused {
		put("paused", name, value)
	}
	for name, value := range q.recurring {
		put("recurring", name, value)
	}
	for topic, upTo := range q.rates {
		put("rates", topic, strconv.FormatFloat(upTo, 'f', 0, 64))
	}
	for id, j := range q.jobs {
		if put("jobs", id, j.record); j.owner != "" {
			put("jobs", id+" lease", fmt.Sprintf("%d %s", j.tillMs, j.owner))
		}
	}
	if len(q.jobs) > 0 {
		put("jobs", "open", q.opened())
	}
	if text := q.turn(nowMs); text != "" {
		put("turns", "record", text)
		put("turns", "epoch", "-")
	}
	if d := q.declared; d.revision != "" {
		put("declared", "revision", d.revision)
		put("declared", "declared", d.text)
	}
	if r := q.record(nowMs); r != nil {
		put("once", "", fmt.Sprintf("%s %d %s %s %s %s", r.state, r.leaseMs, r.owner, r.request, r.plan, r.answer))
	}
}

func (q *queueOracle) opened() (text string) {
	for _, id := range q.open {
		text += id + " "
	}
	return text
}

var layoutFields = []string{"shards", "epoch", "sink", "max_message", "earlier", "next", "retired", "dropping", "rules"}

func (o *oracle) layoutReply() any {
	fields := make([]any, len(layoutFields))
	for i, name := range layoutFields {
		fields[i] = nilable(o.queue.layout, name)
	}
	return []any{o.now(), fields}
}

type ensure struct {
	Ensure                                    int
	Shards, Epoch, Sink, Most, Earlier, Rules string
}

func (v *ensure) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Layout, []string{k.queue.Layout()}, []any{v.Ensure, v.Shards, v.Epoch, v.Sink, v.Most, v.Earlier, v.Rules}
}

func (v *ensure) most() int { return 6 }

func (v *ensure) ask(o *oracle) any {
	now := o.queue.layout
	_, isHere := now["shards"]
	if v.Ensure == 0 || !isHere && v.Epoch == "" {
		return o.layoutReply()
	}
	if !isHere {
		now["shards"], now["epoch"], now["earlier"] = v.Shards, v.Epoch, v.Earlier
	}
	if !isHere || v.Ensure == 1 {
		now["sink"], now["max_message"] = v.Sink, v.Most
		if now["rules"] = v.Rules; v.Rules == "" {
			delete(now, "rules")
		}
	}
	return o.layoutReply()
}

type layoutChange struct {
	Epoch, Next, Earlier string
	Set                  [][2]string
}

func (v *layoutChange) run(k home) (*scripts.Script, []string, []any) {
	args := []any{v.Epoch, v.Next, v.Earlier}
	for _, set := range v.Set {
		args = append(args, set[0], set[1])
	}
	return scripts.Change, []string{k.queue.Layout()}, args
}

func (v *layoutChange) most() int { return 5 + len(v.Set) }

func (v *layoutChange) ask(o *oracle) any {
	now := o.queue.layout
	if epoch, isHere := now["epoch"]; isHere && epoch == v.Epoch && now["next"] == v.Next && now["earlier"] == v.Earlier {
		for _, set := range v.Set {
			if now[set[0]] = set[1]; set[1] == "" {
				delete(now, set[0])
			}
		}
		o.hint = "changed"
	}
	return o.layoutReply()
}

type heartbeat struct {
	Instance string
	ForgetMs int64
}

func (v *heartbeat) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Heartbeat, []string{k.queue.Instances(), k.queue.Paused()}, []any{v.Instance, v.ForgetMs}
}

func (v *heartbeat) most() int { return 8 }

func (v *heartbeat) ask(o *oracle) any {
	all := o.queue.instances
	if _, ok := all[v.Instance]; !ok {
		o.hint = "joined"
	}
	maps.DeleteFunc(all, func(_ string, at int64) bool { return at <= o.now()-v.ForgetMs || at >= o.now()+v.ForgetMs })
	all[v.Instance] = o.now()
	list := []any{}
	for _, name := range lowest(all, math.MaxInt64, len(all)) {
		list = append(list, name, strconv.FormatInt(all[name], 10))
	}
	return []any{list, flat(o.queue.paused)}
}

type leave struct{ Instance string }

func (v *leave) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Leave, []string{k.queue.Instances()}, []any{v.Instance}
}

func (v *leave) most() int { return 2 }

func (v *leave) ask(o *oracle) any {
	_, ok := o.queue.instances[v.Instance]
	delete(o.queue.instances, v.Instance)
	o.hint = "left"
	return flagged(ok)
}

type pause struct {
	Topic  string
	Stops  bool
	Most   int
	Author string
	Seen   string
}

func (v *pause) field() string { return "by\t" + v.Topic }

func (v *pause) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Pause, []string{k.queue.Paused(), k.queue.Instances()}, []any{v.Topic, digits(v.Stops), v.Most, v.field(), v.Author, "by\t\t", v.Seen}
}

func (v *pause) most() int { return 7 }

func (v *pause) ask(o *oracle) any {
	paused := o.queue.paused
	if paused["by\t\t"] == "" {
		paused["by\t\t"] = strconv.FormatInt(o.us, 10)
	}
	calls := paused["by\t\t"]
	if calls != v.Seen {
		return []any{int64(-2), int64(-2), whole(calls)}
	}
	before := int64(-1)
	if text, ok := paused[v.Topic]; ok {
		before = whole(text)
	}
	paused["by\t\t"] = strconv.FormatInt(whole(calls)+1, 10)
	topics := 0
	for name := range paused {
		topics += 1 - int(flagged(strings.HasPrefix(name, "by\t")))
	}
	since := before
	switch {
	case !v.Stops:
		since = -1
	case before < 0 && topics < v.Most:
		since = o.now()
	}
	switch {
	case since == before:
	case since < 0:
		o.hint = "paused"
		delete(paused, v.Topic)
		delete(paused, v.field())
	default:
		o.hint = "paused"
		paused[v.Topic] = strconv.FormatInt(since, 10)
		paused[v.field()] = paused[v.Topic] + " " + v.Author
	}
	return []any{before, since, whole(calls) + 1}
}

type share struct {
	Topic string
	Rate  float64
	Take  int
}

type rate struct{ List []share }

func (v *rate) run(k home) (*scripts.Script, []string, []any) {
	var args []any
	for _, s := range v.List {
		args = append(args, s.Topic, s.Rate, s.Take)
	}
	return scripts.Rate, []string{k.queue.Rates()}, args
}

func (v *rate) most() int { return 4 }

// ask saves up a second's worth, and less than a message more: less than a fifth of a second.
func (v *rate) ask(o *oracle) any {
	granted, now := []any{}, float64(o.us)
	used := maps.Clone(o.queue.rates)
	for _, s := range v.List {
		most := 1e6 + min(2e5, math.Floor(1e6/s.Rate)-1)
		upTo, ok := used[s.Topic]
		if !ok || upTo > now {
			upTo = now
		}
		upTo = max(upTo, now-most)
		n := min(float64(s.Take), math.Floor((now-upTo)*s.Rate/1e6))
		granted = append(granted, int64(n))
		o.queue.rates[s.Topic] = upTo + math.Ceil(n*1e6/s.Rate)
	}
	return granted
}

type jobstart struct {
	ID, Record string
	Most       int
}

func (v *jobstart) run(k home) (*scripts.Script, []string, []any) {
	return scripts.JobStart, []string{k.queue.Jobs()}, []any{v.ID, v.Record, v.Most}
}

func (v *jobstart) most() int { return 3 }

func (v *jobstart) ask(o *oracle) any {
	if len(o.queue.open) >= v.Most {
		return int64(0)
	}
	o.queue.jobs[v.ID] = &queueJob{record: v.Record}
	o.queue.open = append(o.queue.open, v.ID)
	return int64(1)
}

type jobkeep struct {
	ID, Owner string
	LeaseMs   int64
	Record    string // empty: it is taken
	Ends      bool
}

func (v *jobkeep) run(k home) (*scripts.Script, []string, []any) {
	return scripts.JobKeep, []string{k.queue.Jobs()}, []any{v.ID, v.Owner, v.LeaseMs, v.Record, digits(v.Ends)}
}

func (v *jobkeep) most() int { return 9 }

func (v *jobkeep) ask(o *oracle) any {
	j := o.queue.jobs[v.ID]
	if j == nil || !slices.Contains(o.queue.open, v.ID) {
		return []any{int64(0), o.now()}
	}
	left := j.tillMs - o.now()
	isFree := j.owner == "" || left < 0 || left > v.LeaseMs
	if j.owner != v.Owner && (v.Record != "" || !isFree) {
		return []any{int64(0), o.now()}
	}
	if j.owner, j.tillMs = v.Owner, o.now()+v.LeaseMs; v.Record != "" {
		j.record = v.Record
	}
	if v.Ends {
		j.owner = ""
		o.queue.open = slices.DeleteFunc(o.queue.open, func(id string) bool { return id == v.ID })
	}
	return []any{int64(1), o.now(), j.record, int64(0)}
}

type oncebegin struct {
	Request, Owner, Plan string
	LeaseMs, KeptMs      int64
}

func (v *oncebegin) run(k home) (*scripts.Script, []string, []any) {
	return scripts.OnceBegin, []string{k.once}, []any{v.Request, v.Owner, v.Plan, v.LeaseMs, v.KeptMs}
}

func (v *oncebegin) most() int { return 5 }

func (v *oncebegin) ask(o *oracle) any {
	now := o.now()
	r := o.queue.record(now)
	if r == nil {
		o.queue.once = &once{state: "n", owner: v.Owner, request: v.Request, plan: v.Plan, leaseMs: now + v.LeaseMs, tillMs: now + v.KeptMs}
		return []any{int64(1), v.Plan, ""}
	}
	left := r.leaseMs - now
	switch {
	case r.request != v.Request:
		return []any{int64(5), "", ""}
	case r.state == "a":
		return []any{int64(3), r.plan, r.answer}
	case r.owner == v.Owner && r.state == "n":
		return []any{int64(1), r.plan, ""}
	case r.owner == v.Owner:
		return []any{int64(2), r.plan, ""}
	case left > 0 && left <= v.LeaseMs:
		return []any{int64(4), "", ""}
	}
	r.state, r.owner, r.leaseMs = "r", v.Owner, now+v.LeaseMs
	r.tillMs = max(r.tillMs, now+1)
	return []any{int64(2), r.plan, ""}
}

type onceend struct {
	Owner, What string
	KeptMs      int64
	Answer      string
}

func (v *onceend) run(k home) (*scripts.Script, []string, []any) {
	return scripts.OnceEnd, []string{k.once}, []any{v.Owner, v.What, v.KeptMs, v.Answer}
}

func (v *onceend) most() int { return 4 }

func (v *onceend) ask(o *oracle) any {
	r := o.queue.record(o.now())
	switch {
	case r == nil || r.owner != v.Owner:
		return int64(0)
	case r.state == "a":
		return flagged(r.answer == v.Answer)
	case v.What == "a":
		r.state, r.leaseMs, r.answer, r.tillMs = "a", 0, v.Answer, o.now()+v.KeptMs
	case v.What == "r":
		r.state, r.leaseMs, r.tillMs = "r", 0, max(r.tillMs, o.now()+1)
	default:
		o.queue.once = nil
	}
	return int64(1)
}

type recurring struct {
	Name, Was, Seen, Record, Mark string
	Most                          int
	Tells                         bool
}

func (v *recurring) run(k home) (*scripts.Script, []string, []any) {
	channel := ""
	if v.Tells {
		channel = k.queue.Instances()
	}
	return scripts.Recurring, []string{k.queue.Recurring()}, []any{v.Name, v.Was, v.Seen, v.Record, v.Mark, v.Most, channel}
}

func (v *recurring) most() int { return 5 }

func (v *recurring) ask(o *oracle) any {
	all := o.queue.recurring
	switch is, mark := all[v.Name], all[""]; {
	case is == "" && mark == "":
		all[""] = v.Mark
		return []any{int64(0), v.Mark, ""}
	case is != v.Was, is == "" && mark != v.Seen:
		return []any{int64(0), mark, is}
	case is == "" && v.Record != "" && len(all) > v.Most:
		return []any{int64(-1), mark, ""}
	}
	if all[""], all[v.Name] = v.Mark, v.Record; v.Record == "" {
		delete(all, v.Name)
	}
	if v.Tells {
		o.hint = "recurring"
	}
	return []any{int64(1), v.Mark, v.Record}
}

type turn struct {
	Was, Record string
	KeptMs      int64
	head        // its span counts
}

func (v *turn) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Turns, []string{k.turns}, []any{v.Was, v.Record, v.KeptMs, v.span()}
}

func (v *turn) most() int { return 4 }

func (v *turn) ask(o *oracle) any {
	now := o.now()
	is := o.queue.turn(now)
	switch {
	case v.Was == "-":
		return []any{int64(0), is, now}
	case is == v.Record:
		return []any{int64(1), is, now}
	case is != v.Was, is == "" && !v.isWithin(now):
		return []any{int64(0), is, now}
	}
	o.queue.turns = turnsRecord{v.Record, now + v.KeptMs}
	return []any{int64(1), v.Record, now}
}

type declare struct{ Was, Revision, Text string }

func (v *declare) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Declare, []string{k.declared}, []any{v.Was, v.Revision, v.Text}
}

func (v *declare) most() int { return 4 }

func (v *declare) ask(o *oracle) any {
	now, is := o.now(), o.queue.declared
	switch {
	case v.Was == "-":
		return []any{int64(0), is.revision, is.text, now}
	case is.revision == v.Revision:
		return []any{int64(1), is.revision, "", now}
	case is.revision != v.Was:
		return []any{int64(0), is.revision, is.text, now}
	}
	o.queue.declared = declared{v.Revision, v.Text}
	return []any{int64(1), v.Revision, "", now}
}
