package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
	"github.com/delaybridge/delaybridge/internal/engine/store/sound"
)

// The verbs of a shard as their scripts' headers have them: what a script is given, and how many commands it may run.

// verb is one run of a script, with all that it is given.
type verb interface {
	// run is the script with its keys and arguments.
	run(k home) (script *scripts.Script, keys []string, args []any)
	// most is how many commands the script may run.
	most() int
	// ask is what it answers, and does to the shard.
	ask(o *oracle) any
}

// home are the keys of a queue and of its one shard.
type home struct {
	keys.Shard

	queue keys.Queue
	once  string
	turns string
	// declared has a name of its own here for each queue, and not one for all, so that they do not meet.
	declared string
}

// head is what the scripts begin with that belong to an epoch.
type head struct {
	Epoch string
	Span  [2]int64
}

func (h head) isWithin(nowMs int64) bool { return nowMs >= h.Span[0] && nowMs <= h.Span[1] }

func (h head) span() string { return fmt.Sprintf("%d %d", h.Span[0], h.Span[1]) }

// when is an instant in ms, '+' a delay, or 'b' how far from the message's own due time.
type when struct {
	Mode byte
	Ms   int64
	Max  int64 // of a replace with a delay: how long after the first one; 0: no bound
}

func (w when) String() string {
	switch w.Mode {
	case 0:
		return strconv.FormatInt(w.Ms, 10)
	case '+':
		text := "+" + strconv.FormatInt(w.Ms, 10)
		if w.Max > 0 {
			text += "<" + strconv.FormatInt(w.Max, 10)
		}
		return text
	}
	return string(w.Mode) + strconv.FormatInt(w.Ms, 10)
}

func (w when) from(ms int64) int64 {
	if w.Mode == '+' {
		return ms + w.Ms
	}
	return w.Ms
}

// history are the limits of the history; Most 0 is none.
type history struct {
	Most  int
	AgeMs int64
}

func (h history) limits() string { return fmt.Sprintf("%d %d", h.Most, h.AgeMs) }

// keys appends those of the history, where there is one.
func (h history) keys(k home, list ...string) []string {
	if h.Most == 0 {
		return list
	}
	ended, ends := k.History()
	return append(list, ended, ends)
}

// request asks for a message.
type request struct {
	note

	When when
}

func (r request) encode() string {
	if r.When.Max == 0 {
		return r.note.encode()
	}
	return string(message.Encode(r.Token, r.headed(map[string]string{message.HeaderFirstAt: fmt.Sprintf("%013d", 0)})))
}

func topics(list []string) string {
	var b strings.Builder
	for _, topic := range list {
		fmt.Fprintf(&b, "%d:%s", len(topic), topic)
	}
	return b.String()
}

func digits(all ...bool) (text string) {
	for _, is := range all {
		text += strconv.FormatInt(flagged(is), 10)
	}
	return text
}

type schedule struct {
	head

	StartMs  int64 // of the first run; 0: this is it
	Asks     bool
	OnceMs   int64  // how long it leaves tombstones; 0: none
	Leaves   string // which others it leaves: "" none, "t" of all answers, "f" likewise, and heeds none that is there
	BytesMax int64
	Topics   []string
	List     []request
}

func (v *schedule) run(k home) (*scripts.Script, []string, []any) {
	list := []string{k.Due, k.Msg, k.Attempts, k.Dead, k.DeadMsg, k.Gone, k.Meta, k.Wake, k.Deadlines, k.Tags}
	if v.OnceMs != 0 {
		list = append(list, k.GoneTTL)
	}
	isRelative, isTagged := false, false
	var each, stored []any
	for _, r := range v.List {
		isRelative, isTagged = isRelative || r.When.Mode == '+', isTagged || r.Tags != ""
		each, stored = append(each, r.When.String(), r.ID), append(stored, r.encode())
	}
	start, more := "", ""
	if v.StartMs != 0 {
		start = strconv.FormatInt(v.StartMs, 10)
	}
	if v.OnceMs != 0 || len(v.Topics) > 0 {
		more = fmt.Sprintf(" %d%s %s", v.OnceMs, v.Leaves, topics(v.Topics))
	}
	args := []any{v.Epoch, v.span(), start, message.FormatVersion + digits(!v.Asks, isRelative, isTagged) + strconv.FormatInt(v.BytesMax, 10) + more}
	return scripts.Schedule, list, append(append(args, each...), stored...)
}

func (v *schedule) most() int { return 16 + 10*len(v.List) }

type replace struct {
	head

	Run      int
	TombMs   int64
	BytesMax int64
	Asks     bool
	Topics   []string
	OnceMs   int64
	Leaves   string // as of a schedule
	List     []request
}

func (v *replace) run(k home) (*scripts.Script, []string, []any) {
	args := []any{v.Epoch, v.span(), v.Run, v.TombMs, message.FormatVersion, v.BytesMax, digits(!v.Asks), topics(v.Topics), strconv.FormatInt(v.OnceMs, 10) + v.Leaves}
	for _, r := range v.List {
		args = append(args, r.ID, r.When.String(), r.encode())
	}
	return scripts.Replace, []string{k.Due, k.Msg, k.Attempts, k.Dead, k.DeadMsg, k.Gone, k.GoneTTL, k.Meta, k.Wake, k.Settled, k.Tags}, args
}

func (v *replace) most() int { return 8 + 19*len(v.List) }

// target is a message to be cancelled. Row may also be the call that has created it.
type target struct{ Token, ID, Row, Life string }

type cancel struct {
	head
	history

	OldMs    int64
	Run      int
	TombMs   int64
	Last     bool
	BytesMax int64
	Purge    bool
	Tag      string
	Never    bool
	Topics   []string
	List     []target
}

func (v *cancel) run(k home) (*scripts.Script, []string, []any) {
	what := digits(v.Purge)
	switch {
	case v.Tag != "":
		what = "t" + v.Tag
	case v.Never:
		what = "n"
	}
	args := []any{v.Epoch, fmt.Sprintf("%s %d", v.span(), v.OldMs), v.Run, v.TombMs, digits(v.Last), v.BytesMax, what, topics(v.Topics), v.history.limits()}
	for _, r := range v.List {
		args = append(args, r.Token, r.ID, r.Row, r.Life)
	}
	return scripts.Cancel, v.history.keys(k, k.Due, k.Msg, k.Attempts, k.Dead, k.DeadMsg, k.Gone, k.GoneTTL, k.Meta, k.Settled, k.Tags), args
}

func (v *cancel) most() int { return 5 + 43*len(v.List) }

// move is a message to be rescheduled.
type move struct {
	Token, ID string
	When      when
	Row       string // of a row: the token from now on
	Target    string // and the one before
	Life      string
}

type reschedule struct {
	head

	OldMs    int64
	Run      int
	TombMs   int64
	Last     bool
	BytesMax int64
	Redrive  bool
	Topics   []string
	List     []move
}

func (v *reschedule) run(k home) (*scripts.Script, []string, []any) {
	args := []any{v.Epoch, fmt.Sprintf("%s %d", v.span(), v.OldMs), v.Run, v.TombMs, digits(v.Last), v.BytesMax, digits(v.Redrive), topics(v.Topics)}
	for _, r := range v.List {
		args = append(args, r.Token, r.ID, r.When.String(), r.Row, r.Target, r.Life)
	}
	return scripts.Reschedule, []string{k.Due, k.Msg, k.Attempts, k.Dead, k.DeadMsg, k.Gone, k.GoneTTL, k.Meta, k.Wake, k.Settled}, args
}

func (v *reschedule) most() int { return 8 + 43*len(v.List) }

type claim struct {
	Instance  string
	Number    int64
	Max       int
	BytesMax  int64
	TimeoutMs int64
	LeaseMs   int64
	Slot      int
	Seize     string
	OldMs     int64
	Live      []string
	Free      []int
}

func (v *claim) token() string { return fmt.Sprintf("%s|%d", v.Instance, v.Number) }

func (v *claim) run(k home) (*scripts.Script, []string, []any) {
	args := []any{v.Instance, v.Number, v.Max, v.BytesMax, v.TimeoutMs, v.LeaseMs, v.Slot, v.Seize, v.OldMs, len(v.Live)}
	for _, token := range v.Live {
		args = append(args, token)
	}
	for _, slot := range v.Free {
		args = append(args, slot)
	}
	return scripts.Claim, []string{k.Due, k.Msg, k.Claims, k.Deadlines, k.Attempts, k.Gone, k.GoneTTL, k.Holder, k.Meta, k.Routes}, args
}

// most grows by one a message at worst, where bodies are large beside the limit, and one a slot.
func (v *claim) most() int { return 24 + v.Max + 2*len(v.Free) }

// verdict is what becomes of a claimed message: keep, ack, drop, retry, release, park or bury.
type verdict struct {
	Verb    string
	DelayMs int64
	Tries   string
	Slot    int
	Route   string
	SinceMs int64
	Reason  string
}

type settle struct {
	history

	Token    string
	List     []claimed
	Verdicts []verdict
	Repeated bool
	Ledger   bool
	TombMs   int64
}

// after is what stays in the claim.
func (v *settle) after() (list []claimed) {
	for i, c := range v.List {
		if v.Verdicts[i].Verb == "keep" {
			list = append(list, c)
		}
	}
	return list
}

// parks are the routes, one a slot.
func (v *settle) parks() (list []verdict) {
	for _, p := range v.Verdicts {
		if p.Slot > 0 && !slices.ContainsFunc(list, func(other verdict) bool { return other.Slot == p.Slot }) {
			list = append(list, p)
		}
	}
	return list
}

// ends are what the history is told.
func (v *settle) ends() (list [][2]string) {
	for i, c := range v.List {
		if kind := map[string]string{"ack": "p", "drop": "d", "bury": "D"}[v.Verdicts[i].Verb]; kind != "" {
			list = append(list, [2]string{c.ID, told(kind, c.due(), c.Tries, c.Topic, v.Verdicts[i].Reason)})
		}
	}
	return list
}

// ranked has the tokens of rows first, then those of traced messages.
func ranked(token string) int { return 2 - int(flagged(isOutbox(token))+flagged(isRow(token))) }

func (v *settle) run(k home) (*scripts.Script, []string, []any) {
	var removed [3][]any
	var fates [3]string
	var back, dead, parks, tags []any
	var retried, parked, doubled, dropped int
	for i, c := range v.List {
		verdict := v.Verdicts[i]
		switch verdict.Verb {
		case "ack", "drop":
			rank, isMarked, fate := ranked(c.Token), counts(c.Tries)[2] > 0, "p"
			if verdict.Verb == "drop" {
				dropped++
				fate = ending(isMarked)
			} else if isMarked {
				doubled++
			}
			if removed[rank] = append(removed[rank], c.ID); rank < 2 {
				fates[rank] += fate + c.Token
			}
			for tag := range strings.SplitSeq(c.Tags, ",") {
				if tag != "" {
					tags = append(tags, sound.TagEntry(tag, c.ID))
				}
			}
		case "retry":
			retried++
			back = append(back, c.ID, fmt.Sprintf("+%d", verdict.DelayMs), fmt.Sprintf("%s %d", verdict.Tries, c.due()))
		case "release", "park":
			if back = append(back, c.ID, c.due()+int64(verdict.Slot)*slotSize, verdict.Tries); verdict.Verb == "park" {
				parked++
			}
		case "bury":
			dead = append(dead, c.ID, c.due(), verdict.Tries, verdict.Reason)
		}
	}
	for _, p := range v.parks() {
		parks = append(parks, p.Slot, p.SinceMs, p.Route, p.Reason)
	}
	entries := make([]string, len(v.List))
	for i := range v.List {
		entries[i] = packed(v.List[i : i+1])
	}
	told := 0
	if v.Ledger {
		told = len(removed[0])
	}
	args := []any{
		v.Token, len(packed(v.List)), entries[0], entries[len(entries)-1], packed(v.after()), digits(v.Repeated),
		len(removed[0]) + len(removed[1]) + len(removed[2]), len(back) / 3, len(dead) / 4, len(parks) / 4, retried, parked, doubled,
		len(removed[0]) + len(removed[1]), told, fates[0] + fates[1], v.TombMs, dropped,
	}
	for _, list := range [][]any{removed[0], removed[1], removed[2], back, dead, parks, tags} {
		args = append(args, list...)
	}
	list := []string{k.Due, k.Msg, k.Claims, k.Deadlines, k.Attempts, k.Dead, k.DeadMsg, k.Meta, k.Routes, k.Gone, k.GoneTTL, k.Settled, k.Tags}
	if ends := v.ends(); v.Most > 0 && len(ends) > 0 {
		list = v.history.keys(k, list...)
		for _, end := range ends {
			args = append(args, end[0], end[1])
		}
		args = append(args, len(ends), v.history.limits())
	}
	return scripts.Settle, list, args
}

func (v *settle) most() int {
	parks := 0
	for _, verdict := range v.Verdicts {
		if verdict.Verb == "bury" || verdict.Verb == "park" {
			parks++
		}
	}
	return 44 + parks
}

type named struct{ ID, Token string }

type mark struct {
	Counts   bool
	BytesMax int64
	List     []named
}

func (v *mark) run(k home) (*scripts.Script, []string, []any) {
	args := []any{digits(v.Counts), v.BytesMax}
	for _, r := range v.List {
		args = append(args, r.ID, r.Token)
	}
	return scripts.Mark, []string{k.Msg, k.Attempts, k.Meta}, args
}

func (v *mark) most() int { return 5 + 2*len(v.List) }

type reclaim struct {
	Instance string
	Foreign  bool
	Stray    string
}

func (v *reclaim) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Reclaim, []string{k.Due, k.Claims, k.Deadlines, k.Attempts, k.Holder, k.Meta}, []any{v.Instance, digits(v.Foreign), v.Stray}
}

func (v *reclaim) most() int { return 11 }

type confirm struct{ Token string }

func (v *confirm) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Confirm, []string{k.Claims}, []any{v.Token}
}

func (v *confirm) most() int { return 1 }

type handover struct{ Instance string }

func (v *handover) run(k home) (*scripts.Script, []string, []any) {
	return scripts.HandOver, []string{k.Holder, k.Wake}, []any{v.Instance}
}

func (v *handover) most() int { return 3 }

// row is a message that stands for a row.
type row struct {
	note

	DueMs   int64
	Mark    string
	UntilMs int64  // of one without a row: how long its tombstone lives
	Before  string // of a renewal: the token under which it waits
}

type put struct {
	head

	Asks     bool
	BytesMax int64
	List     []row
}

func (v *put) run(k home) (*scripts.Script, []string, []any) {
	args := []any{v.Epoch, v.span(), digits(!v.Asks), message.FormatVersion, v.BytesMax}
	for _, r := range v.List {
		until := ""
		if r.UntilMs != 0 {
			until = strconv.FormatInt(r.UntilMs, 10)
		}
		args = append(args, r.ID, r.DueMs, r.Mark, until, r.encode())
	}
	return scripts.Put, []string{k.Due, k.Msg, k.Attempts, k.Dead, k.DeadMsg, k.Gone, k.Settled, k.Meta, k.Wake, k.GoneTTL, k.Tags}, args
}

func (v *put) most() int { return 16 + 26*len(v.List) }

type renew struct {
	head

	TombMs   int64
	BytesMax int64
	List     []row
}

func (v *renew) run(k home) (*scripts.Script, []string, []any) {
	args := []any{v.Epoch, v.span(), v.TombMs, message.FormatVersion, v.BytesMax}
	for _, r := range v.List {
		args = append(args, r.ID, r.DueMs, r.Mark, r.Before, r.encode())
	}
	return scripts.Renew, []string{k.Due, k.Msg, k.Attempts, k.Gone, k.GoneTTL, k.Settled, k.Meta, k.Wake, k.Tags}, args
}

func (v *renew) most() int { return 6 + 13*len(v.List) }

type ended struct{ ID, Token, Fate string }

type remove struct {
	history

	TombMs   int64
	BytesMax int64
	List     []ended
}

func (v *remove) run(k home) (*scripts.Script, []string, []any) {
	args := []any{v.TombMs, v.BytesMax, v.history.limits()}
	for _, r := range v.List {
		args = append(args, r.ID, r.Token, r.Fate)
	}
	return scripts.Remove, v.history.keys(k, k.Due, k.Msg, k.Attempts, k.Gone, k.GoneTTL, k.Meta, k.Tags), args
}

func (v *remove) most() int { return 2 + 18*len(v.List) }

type fated struct{ Token, Entry string }

type forget struct {
	TombMs int64
	List   []fated
}

func (v *forget) run(k home) (*scripts.Script, []string, []any) {
	args := []any{v.TombMs}
	for _, r := range v.List {
		args = append(args, r.Token, r.Entry)
	}
	return scripts.Forget, []string{k.Settled, k.Gone, k.GoneTTL}, args
}

func (v *forget) most() int { return 7 }

type fence struct {
	Epoch, Content string
	Makes          bool
}

func (v *fence) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Fence, []string{k.Meta}, []any{v.Epoch, v.Content, digits(v.Makes)}
}

func (v *fence) most() int { return 5 }

type drained struct{ Epoch, Before string }

func (v *drained) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Drained, []string{k.Meta}, []any{v.Epoch, v.Before}
}

func (v *drained) most() int { return 4 }

type drop struct{}

func (v *drop) run(k home) (*scripts.Script, []string, []any) {
	ended, ends := k.History()
	return scripts.Drop, []string{
		k.Meta, k.Msg, k.Dead, k.Claims, k.Settled, k.Due, k.Deadlines, k.Attempts, k.Gone, k.GoneTTL, k.DeadMsg, k.Holder, k.Routes, k.Tags, ended, ends,
	}, nil
}

func (v *drop) most() int { return 5 }

type budget struct{ Field, Value string }

func (v *budget) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Budget, []string{k.Meta}, []any{v.Field, v.Value}
}

func (v *budget) most() int { return 3 }

type touch struct{}

func (v *touch) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Touch, []string{k.Meta}, nil
}

func (v *touch) most() int { return 3 }

// mend finds nothing wrong in a shard that only scripts have written.
type mend struct{ Kind, Name, Tag string }

func (v *mend) run(k home) (*scripts.Script, []string, []any) {
	ended, ends := k.History()
	list := []string{k.Due, k.Msg, k.Claims, k.Deadlines, k.Attempts, k.Dead, k.DeadMsg, k.Meta, k.Gone, k.GoneTTL, k.Tags, ended, ends}
	return scripts.Mend, list, []any{v.Kind, v.Name, 1, v.Tag, "", 1000, 60_000, 1000, 100}
}

func (v *mend) most() int { return 24 }

type get struct {
	head
	history

	ID string
}

func (v *get) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Get, v.history.keys(k, k.Due, k.Msg, k.Claims, k.Attempts, k.DeadMsg, k.Meta, k.Dead, k.Routes), []any{v.Epoch, v.ID}
}

func (v *get) most() int { return 9 }

type stats struct{}

func (v *stats) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Stats, []string{k.Due, k.Msg, k.Dead, k.Deadlines, k.Holder, k.Meta, k.Settled}, nil
}

func (v *stats) most() int { return 11 }

type parked struct{ From, Most int }

func (v *parked) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Parked, []string{k.Due, k.Routes}, []any{v.From, v.Most}
}

func (v *parked) most() int { return 1 + 3*v.Most }

type page struct {
	head

	Where        store.Code // Waiting, Dead
	MinMs, MaxMs int64
	AfterMs      int64
	AfterID      string
	Count        int
}

func (v *page) run(k home) (*scripts.Script, []string, []any) {
	key, after := k.Due, ""
	if v.Where == store.Dead {
		key = k.Dead
	}
	if v.AfterID != "" {
		after = strconv.FormatInt(v.AfterMs, 10)
	}
	return scripts.Page, []string{key, k.Meta}, []any{v.Epoch, v.MinMs, v.MaxMs, after, v.AfterID, v.Count}
}

// most is less than one a message: they are halved.
func (v *page) most() int { return 16 }

type tagged struct {
	head

	Tag, AfterID string
	Count        int
}

func (v *tagged) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Tagged, []string{k.Tags, k.Due, k.Msg, k.Dead, k.Meta}, []any{v.Epoch, v.Tag, v.AfterID, v.Count}
}

func (v *tagged) most() int { return 4 + 3*v.Count }

// many is how many a page has: all that is there.
const many = 1000

type members struct {
	head

	IDs          []string
	Pages        bool // instead of them
	Topic, Not   string
	Prefix       string // of ids without their keys
	MinMs, MaxMs int64
}

func (v *members) run(k home) (*scripts.Script, []string, []any) {
	cursor := ""
	if v.Pages {
		cursor = "0"
	}
	args := []any{v.Epoch, cursor, many, "*", v.Topic, v.Prefix, v.Not, v.MinMs, v.MaxMs}
	for _, id := range v.IDs {
		args = append(args, id)
	}
	return scripts.Members, []string{k.Msg, k.Due, k.Dead, k.Meta}, args
}

func (v *members) most() int { return 4 + 3*(len(v.IDs)+int(flagged(v.Pages))*idsMax) }

type rows struct {
	BytesMax int64
	Rest     []string // of a page; none: a page
}

func (v *rows) run(k home) (*scripts.Script, []string, []any) {
	args := []any{"0", many, v.BytesMax}
	for _, id := range v.Rest {
		args = append(args, id)
	}
	return scripts.Rows, []string{k.Due, k.Msg}, args
}

func (v *rows) most() int { return 1 + 2*idsMax }

type scan struct{}

func (v *scan) run(k home) (*scripts.Script, []string, []any) {
	return scripts.Scan, []string{k.Msg}, []any{"HSCAN", "0", many}
}

func (v *scan) most() int { return 1 }

// name is a verb's for people.
func name(v verb) string {
	text := strings.TrimPrefix(fmt.Sprintf("%T", v), "*sim.")
	return cmp.Or(text, "?")
}
