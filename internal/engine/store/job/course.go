package job

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

const (
	// lease is how long a job stays with its runner, margin how much earlier the
	// runner begins nothing more: longer than a run of a script may take.
	lease  = 15 * time.Second
	margin = 3 * time.Second
	// stepSize is how many messages are written down and changed together.
	stepSize = 200
	// clockMargin is how far the clocks of the nodes may differ: a message that came so
	// much later than the job still counts as one that was there.
	clockMargin = 2 * time.Second
	// remembered is for how long what a step has answered is found again.
	remembered = store.Tombstone - time.Second
	// mostLeft is how many messages that were in flight, or cannot be read, a job knows by their names.
	mostLeft = 8192
	// mostMoves is how often in a row all that were looked at by name may have moved.
	mostMoves = 5
)

// record is what Redis has of a job. Its place, Part to Rest, is behind the messages of Step.
type record struct {
	Job

	Part   int                `json:"part,omitempty"`   // of the walk
	Cursor string             `json:"cursor,omitempty"` // in a listing
	Scan   *inspect.ScanPlace `json:"scan,omitempty"`   // in the names
	Rest   []string           `json:"rest,omitempty"`   // members to be looked at before the walk goes on
	Left   []string           `json:"left,omitempty"`   // members that were in flight as the job was about them
	More   int64              `json:"more,omitempty"`   // how many more were, see mostLeft
	Broken []string           `json:"broken,omitempty"` // members that were counted as failed, likewise
	Mark   string             `json:"mark"`             // the tokens that it gives begin with it
	Serial uint64             `json:"serial"`           // of the tokens that it has given
	Step   *step              `json:"step,omitempty"`
}

// step is what the runner is about to do.
type step struct {
	At    time.Time `json:"at"` // by Redis' clock, before it began
	Items []item    `json:"items"`
}

// item is one message of a step.
type item struct {
	Member string `json:"member"`
	Token  string `json:"token"` // of the operation
	Life   string `json:"life"`  // the token in force when it was matched; empty where it cannot be read
}

// actionKind is what a course wants.
type actionKind uint8

const (
	actionBegin  actionKind = iota // a step, which next does
	actionList                     // a page of messages: listed
	actionScan                     // a page of names: scanned
	actionLook                     // at messages by their names: looked
	actionAsk                      // which messages of rows the job has moved already: told
	actionKeep                     // the record: kept
	actionChange                   // messages: changed
	actionRest                     // the step is over
)

// action is one, with what it takes. It is a record.
type action struct {
	kind   actionKind
	list   inspect.ListRequest
	scan   inspect.ScanPlace
	names  []string
	items  []item
	record *record
	until  time.Time // nothing of it begins later
}

// course takes a job to its end in the hands of one runner, as a machine; its diagram is in doc.go.
// Now is Redis' clock.
//
// Whatever fails, and whoever goes on: a message is changed only once it was written down, in a
// record that this runner has still; what became of it is counted once; and the place that is
// written down has no message before it that the job means and that is neither counted nor in Step
// or Rest.
type course struct {
	record record    // as it was kept, and what became of its step since
	leased time.Time // until then
	isTold bool      // to stop
	moves  int       // how often in a row all that were looked at by name had moved

	do    actionKind
	now   time.Time
	draft *draft // what is kept next
}

// draft is a record while its step is made.
type draft struct {
	record

	most   int // messages of a step
	looked int // names in this step
	found  []inspect.ListItem
	items  []item
}

// next is what to do now; most bounds the messages of a step.
func (c *course) next(now time.Time, most int) action {
	if c.now = now; c.do == actionBegin {
		c.begin(min(most, stepSize))
	}
	switch d := c.draft; c.do {
	case actionList:
		return action{kind: c.do, list: d.request()}
	case actionScan:
		return action{kind: c.do, scan: *cmp.Or(d.Scan, &inspect.ScanPlace{Cursor: "0"})}
	case actionLook:
		return action{kind: c.do, names: d.names()}
	case actionAsk:
		return action{kind: c.do, items: d.rows()}
	case actionKeep:
		return action{kind: c.do, record: &d.record}
	case actionChange:
		return action{kind: c.do, items: c.record.Step.Items, until: c.leased.Add(-margin)}
	default:
		c.do = actionBegin
		return action{kind: actionRest}
	}
}

func (c *course) begin(most int) {
	switch r := &c.record; {
	case r.Step != nil: // Not all is answered: it is asked again under the same tokens.
		c.open(actionKeep)
	case c.isTold:
		c.end(Stopped, "")
	case r.isWalked() && len(r.Rest)+len(r.Left) == 0:
		c.end(Done, "")
	case c.now.Sub(r.StartedAt) > life:
		c.end(Failed, "it took longer than "+life.String())
	default:
		c.open(actionLook)
		c.draft.most = most
		switch {
		case len(r.Rest) > 0:
		case r.isWalked():
			c.draft.Rest = r.Left // Another round.
		case r.Spec.walk()[r.Part] == walkMembers:
			c.do = actionScan
		default:
			c.do = actionList
		}
	}
}

// open begins a draft, which shares nothing with the record that holds where it fails.
func (c *course) open(do actionKind) {
	c.do, c.draft = do, &draft{record: c.record}
	c.draft.Rest, c.draft.Left = slices.Clone(c.record.Rest), slices.Clone(c.record.Left)
}

// end has the last of the job written down.
func (c *course) end(state State, why string) {
	c.open(actionKeep)
	d := c.draft
	d.State, d.Err, d.EndedAt = state, why, c.now
	if remaining := int64(len(d.Left)) + d.More + d.Tally.Failed; state == Done && !d.Spec.DryRun {
		d.Remaining = &remaining
	}
	d.Left, d.Broken, d.Cursor = nil, nil, ""
}

// finish ends the job, whatever is still in flight.
func (c *course) finish(now time.Time) {
	c.now = now
	c.end(Done, "")
}

// release has others go on.
func (c *course) release() {
	c.open(actionKeep)
	c.draft.State = Waiting
}

// failed gives up the step, as if it had not begun: nothing is known of what was asked for.
func (c *course) failed() { c.do, c.draft = actionBegin, nil }

// waits reports whether nothing is to be done but to look again at what was in flight.
func (c *course) waits() bool {
	r := &c.record
	return r.Step == nil && r.isWalked() && len(r.Rest) == 0 && len(r.Left) > 0
}

// part is a part of a job's walk: a state as it is listed, or one of these.
type part string

const (
	// walkTag goes by the index of the tag, where a message has one place in any state.
	walkTag part = "tag"
	// walkMembers goes by the names of what waits or is in flight, see doc.go.
	walkMembers part = "members"
)

// walk are the parts of the walk of a job, in their order.
func (s *Spec) walk() []part {
	state := s.Filter.State
	if s.isOfDead() {
		state = inspect.StateDead
	}
	switch {
	case s.Filter.Tag != "":
		return []part{walkTag}
	case s.DryRun && state == "":
		return []part{part(inspect.StateScheduled), part(inspect.StateParked), part(inspect.StateInFlight), part(inspect.StateDead)}
	case s.DryRun || state == inspect.StateDead: // Who dies later is listed later.
		return []part{part(state)}
	case state == inspect.StateInFlight:
		return []part{walkMembers}
	case state != "":
		return []part{part(state), walkMembers}
	default: // Who is met by its name and then dies was in flight, so it is looked at again.
		return []part{part(inspect.StateScheduled), part(inspect.StateParked), walkMembers, part(inspect.StateDead)}
	}
}

// isOfDead reports whether the job is for dead letters only.
func (s *Spec) isOfDead() bool {
	f := &s.Filter
	return f.State == inspect.StateDead || f.Reason != "" || f.ReasonContains != "" || s.Verb == Redrive || s.Verb == Purge
}

func (r *record) isWalked() bool { return r.Part >= len(r.Spec.walk()) }

// request is for the next page of a listing.
func (d *draft) request() inspect.ListRequest {
	r := inspect.ListRequest{Filter: d.Spec.Filter, Limit: d.most, After: d.Cursor}
	if at := d.Spec.walk()[d.Part]; at != walkTag {
		r.State = inspect.State(at)
	}
	return r
}

// names are the next that are to be looked at.
func (d *draft) names() []string { return d.Rest[:min(d.most, len(d.Rest))] }

// listed takes a page of a listing.
func (c *course) listed(page inspect.Page) {
	d := c.draft
	if d.Cursor = page.Next; page.Next == "" {
		d.Part++
	}
	c.found(page.Messages)
}

// scanned takes a page of names. Others follow until there are messages for a step, or enough was
// looked at. What is more than the step may have is looked at by its name then.
func (c *course) scanned(page inspect.NamesPage) {
	d := c.draft
	d.looked += page.Looked
	d.Rest = append(d.Rest, page.Moved...)
	for i := range page.Messages {
		if m := &page.Messages[i]; d.means(m) {
			d.found = append(d.found, *m)
		}
	}
	if d.Scan = &page.After; page.IsLast {
		d.Part, d.Scan = d.Part+1, nil
	}
	if d.Scan != nil && len(d.found) < d.most && d.looked < inspect.MaxLooked {
		return
	}
	n := min(d.most, len(d.found))
	for i := range d.found[n:] {
		d.Rest = append(d.Rest, d.found[n+i].Member())
	}
	c.found(d.found[:n])
}

// looked takes what was found of the names, and which had moved: these are looked at again. One
// that the job does not mean any more is left no longer.
func (c *course) looked(found []inspect.ListItem, moved []string) {
	d := c.draft
	names := d.names()
	if c.moves++; len(moved) < len(names) {
		c.moves = 0
	} else if c.moves > mostMoves {
		moved = nil // They have a place and no text: others tell of it.
	}
	d.Rest = append(d.Rest[len(names):], moved...)
	gone := map[string]bool{}
	for _, name := range names {
		gone[name] = !slices.Contains(moved, name)
	}
	for i := range found {
		if m := &found[i]; d.means(m) {
			gone[m.Member()] = false
		}
	}
	d.Left = slices.DeleteFunc(d.Left, func(member string) bool { return gone[member] })
	c.found(found)
}

// found makes items of those that the job means.
func (c *course) found(list []inspect.ListItem) {
	d := c.draft
	for i := range list {
		m := &list[i]
		if !d.means(m) {
			continue
		}
		d.Place = Place{State: m.State, DueAt: m.Found.DueAt, ID: m.Found.ID}
		switch {
		case d.Spec.DryRun:
			d.Tally.Matched++
		case m.Found.Err != nil && d.Spec.moves():
			d.broken(m.Member())
		default:
			d.items = append(d.items, d.item(m))
		}
	}
	if c.do = actionAsk; len(d.rows()) == 0 {
		c.told(nil)
	}
}

// means reports whether the job is to change the message: it was there at the start,
// and the job has not moved it.
func (r *record) means(m *inspect.ListItem) bool {
	until := r.StartedAt.Add(clockMargin)
	if m.Found.ScheduledAt.After(until) || r.Spec.isOfDead() && r.Spec.Verb != Cancel && m.Found.DiedAt.After(until) {
		return false
	}
	return !hasMark(m.Found.Token, r.Mark)
}

// markLength is how much of the tokens that a job gives is the job's mark; the rest
// is their number.
const markLength = 8

// item is a message as the job is to change it.
func (r *record) item(m *inspect.ListItem) item {
	member := m.Member()
	it := item{Member: member, Life: m.Found.Token}
	if m.Found.Err != nil {
		it.Life = ""
	}
	if message.IsOutboxToken(it.Life) {
		sum := sha256.Sum256([]byte(r.Mark + it.Life + member))
		it.Token = base64.RawURLEncoding.EncodeToString(sum[:12])
		return it
	}
	var raw [8]byte
	r.Serial++
	binary.BigEndian.PutUint64(raw[:], r.Serial)
	it.Token = r.Mark + base64.RawURLEncoding.EncodeToString(raw[2:])
	return it
}

// hasMark reports whether the job of that mark has given the token.
func hasMark(token, mark string) bool {
	return len(token) == message.TokenLength && token[:markLength] == mark
}

// rows are the items whose message tells nothing of whether the job has moved it.
func (d *draft) rows() (rows []item) {
	for _, it := range d.items {
		if d.Spec.moves() && message.IsOutboxToken(it.Life) {
			rows = append(rows, it)
		}
	}
	return rows
}

// told takes the tokens under which the job has moved messages of rows already. The others are
// the step.
func (c *course) told(moved map[string]bool) {
	d := c.draft
	items := slices.DeleteFunc(d.items, func(it item) bool { return moved[it.Token] })
	for _, it := range items {
		d.matched(it.Member)
	}
	if len(items) > 0 {
		d.Step = &step{c.now, items}
	}
	c.do = actionKeep
}

// matched counts a message, once: one that was in flight before is no more.
func (r *record) matched(member string) {
	if at := slices.Index(r.Left, member); at >= 0 {
		r.Left = slices.Delete(r.Left, at, at+1)
		r.Tally.TooLate--
		return
	}
	r.Tally.Matched++
}

// broken counts a message that cannot be read, once: it may be met by its place and by its name.
func (r *record) broken(member string) {
	if slices.Contains(r.Broken, member) {
		return
	}
	r.matched(member)
	if r.Tally.Failed++; len(r.Broken) < mostLeft {
		r.Broken = append(r.Broken, member)
	}
}

// kept says that the record was written down, and until when the job is the runner's.
func (c *course) kept(leased time.Time, isTold bool) {
	c.record, c.leased, c.isTold, c.draft = c.draft.record, leased, isTold, nil
	if c.do = actionRest; c.record.State == Running && c.record.Step != nil {
		c.do = actionChange
	}
}

// changed takes what became of the messages of the step, and returns how many have an answer.
// What an earlier run has answered may be forgotten by now.
func (c *course) changed(now time.Time, answers []store.Answer) (n int) {
	step := c.record.Step
	isForgotten := now.Sub(step.At) > remembered
	var left []item
	for i, a := range answers {
		if a.Err != nil {
			left = append(left, step.Items[i])
		} else {
			c.record.count(a.Code, step.Items[i].Member, isForgotten)
		}
	}
	if n, step.Items = len(answers)-len(left), left; len(left) == 0 {
		c.record.Step = nil
	}
	c.do = actionRest
	return n
}

func (r *record) count(code store.Code, member string, isForgotten bool) {
	t := &r.Tally
	switch code {
	case store.Done:
		t.Done++
	case store.DoneMaybePublished:
		t.MaybePublished++
	case store.InFlight:
		t.TooLate++
		if len(r.Left) < mostLeft {
			r.Left = append(r.Left, member)
		} else { // Of very many the last are only counted.
			r.More++
		}
	default:
		if r.Rest = append(r.Rest, member); isForgotten { // Others may have changed it only.
			t.Unknown++
		} else {
			t.Gone++
		}
	}
}
