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
	// lease is how long a job stays with its runner. The runner starts nothing
	// in the last margin of it, which is longer than a run of a script may take.
	lease  = 15 * time.Second
	margin = 3 * time.Second
	// stepSize is how many messages are recorded and changed together.
	stepSize = 200
	// clockMargin is how far the clocks of the nodes may differ: a message that came up
	// to that much later than the job still counts as one that was there.
	clockMargin = 2 * time.Second
	// remembered is how long the answers of a step can be found again.
	remembered = store.Tombstone - time.Second
	// mostLeft limits how many names of messages in flight, or unreadable ones, a job keeps.
	mostLeft = 8192
	// mostMoves is how many times in a row all messages read by name may have moved.
	mostMoves = 5
)

// record is a job as Redis stores it. Its place, Part to Rest, is after the messages of Step.
type record struct {
	Job

	Part   int                `json:"part,omitempty"`   // of the walk
	Cursor string             `json:"cursor,omitempty"` // in a listing
	Scan   *inspect.ScanPlace `json:"scan,omitempty"`   // in the names
	Rest   []string           `json:"rest,omitempty"`   // members to read before the walk continues
	Left   []string           `json:"left,omitempty"`   // members that were in flight when the job came to them
	More   int64              `json:"more,omitempty"`   // how many more there were, see mostLeft
	Broken []string           `json:"broken,omitempty"` // members that were counted as failed, likewise
	Mark   string             `json:"mark"`             // the prefix of the tokens that the job gives
	Serial uint64             `json:"serial"`           // number of the last token given
	Step   *step              `json:"step,omitempty"`
}

// step is the batch of changes that the runner is about to make.
type step struct {
	At    time.Time `json:"at"` // by Redis' clock, before it began
	Items []item    `json:"items"`
}

// item is one message of a step.
type item struct {
	Member string `json:"member"`
	Token  string `json:"token"` // of the operation
	Life   string `json:"life"`  // the token in force when it was matched; empty if it cannot be read
}

// actionKind is the kind of an action.
type actionKind uint8

const (
	actionBegin  actionKind = iota // a step; only next uses it
	actionList                     // a page of messages: listed
	actionScan                     // a page of names: scanned
	actionLook                     // read messages by name: looked
	actionAsk                      // ask which messages of rows the job has moved already: told
	actionKeep                     // the record: kept
	actionChange                   // messages: changed
	actionRest                     // the step is over
)

// action is what a course asks its driver to do, with the arguments.
type action struct {
	kind   actionKind
	list   inspect.ListRequest
	scan   inspect.ScanPlace
	names  []string
	items  []item
	record *record
	until  time.Time // no part of it starts later
}

// course is the machine of a job in the hands of one runner; its diagram is in doc.go. Now is
// Redis' clock.
//
// Whatever fails, and whoever continues: a message is changed only after it was recorded, while
// this runner still has the job; its result is counted once; and every message of the job before
// the recorded place is counted, or in Step or Rest.
type course struct {
	record record    // as last kept, plus the results of its step since then
	leased time.Time // end of the lease
	isTold bool      // to stop
	moves  int       // how many times in a row all messages read by name had moved

	do    actionKind
	now   time.Time
	draft *draft // the record to keep next
}

// draft is a record while its step is being made.
type draft struct {
	record

	most   int // messages of a step
	looked int // names in this step
	found  []inspect.ListItem
	items  []item
}

// next returns what to do now; most bounds the messages of a step.
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

// begin decides what the next step does first.
//
//	a step has no answer | told to stop | walked to the end | names left to read | some were in flight | older than a life | it walks by  → first
//	yes                  | *            | *                 | *                  | *                   | *                 | *            → repeat that step
//	no                   | yes          | *                 | *                  | *                   | *                 | *            → end: stopped
//	no                   | no           | yes               | no                 | no                  | *                 | *            → end: done
//	no                   | no           | *                 | *                  | *                   | yes               | *            → end: failed
//	no                   | no           | *                 | yes                | *                   | no                | *            → look at these
//	no                   | no           | yes               | no                 | yes                 | no                | *            → look at those in flight
//	no                   | no           | no                | no                 | *                   | no                | names        → scan
//	no                   | no           | no                | no                 | *                   | no                | a list       → list
func (c *course) begin(most int) {
	switch r := &c.record; {
	case r.Step != nil: // Some answers are missing: ask again under the same tokens.
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

// open begins a draft. It shares nothing with the record, which stays in force if the draft fails.
func (c *course) open(do actionKind) {
	c.do, c.draft = do, &draft{record: c.record}
	c.draft.Rest, c.draft.Left = slices.Clone(c.record.Rest), slices.Clone(c.record.Left)
}

// end drafts the final record of the job.
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

// release gives the job up, so that another runner resumes it.
func (c *course) release() {
	c.open(actionKeep)
	c.draft.State = Waiting
}

// discard drops the draft as if the step had not begun, since the result of the action is not known.
func (c *course) discard() { c.do, c.draft = actionBegin, nil }

// waits reports whether all that is left is to look again at messages that were in flight.
func (c *course) waits() bool {
	r := &c.record
	return r.Step == nil && r.isWalked() && len(r.Rest) == 0 && len(r.Left) > 0
}

// part is a part of a job's walk: a state to list, or one of these.
type part string

const (
	// walkTag uses the index of the tag, where a message keeps its place in every state.
	walkTag part = "tag"
	// walkMembers scans the names of messages that wait or are in flight, see doc.go.
	walkMembers part = "members"
)

// walk returns the parts of a job's walk in their order.
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
	case s.DryRun || state == inspect.StateDead: // Messages that die later are listed later.
		return []part{part(state)}
	case state == inspect.StateInFlight:
		return []part{walkMembers}
	case state != "":
		return []part{part(state), walkMembers}
	default: // A message that is read by name and then dies was in flight, so it is read again.
		return []part{part(inspect.StateScheduled), part(inspect.StateParked), walkMembers, part(inspect.StateDead)}
	}
}

// isOfDead reports whether the job is for dead letters only.
func (s *Spec) isOfDead() bool {
	f := &s.Filter
	return f.State == inspect.StateDead || f.Reason != "" || f.ReasonContains != "" || s.Verb == Redrive || s.Verb == Purge
}

func (r *record) isWalked() bool { return r.Part >= len(r.Spec.walk()) }

// request returns the request for the next page of a listing.
func (d *draft) request() inspect.ListRequest {
	r := inspect.ListRequest{Filter: d.Spec.Filter, Limit: d.most, After: d.Cursor}
	if at := d.Spec.walk()[d.Part]; at != walkTag {
		r.State = inspect.State(at)
	}
	return r
}

// names returns the next names to read.
func (d *draft) names() []string { return d.Rest[:min(d.most, len(d.Rest))] }

// listed takes a page of a listing.
func (c *course) listed(page inspect.Page) {
	d := c.draft
	if d.Cursor = page.Next; page.Next == "" {
		d.Part++
	}
	c.addItems(page.Messages)
}

// scanned takes a page of names. More pages follow until there are messages for a step, or enough
// names were read. Messages beyond the step's limit are read by name later.
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
	c.addItems(d.found[:n])
}

// looked takes the messages found by name, and the names that had moved, which are read again.
// A message that no longer matches the job is not kept any more.
func (c *course) looked(found []inspect.ListItem, moved []string) {
	d := c.draft
	names := d.names()
	if c.moves++; len(moved) < len(names) {
		c.moves = 0
	} else if c.moves > mostMoves {
		moved = nil // They have a place and no text, which others report.
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
	c.addItems(found)
}

// addItems adds the messages that the job means to the step's items.
func (c *course) addItems(list []inspect.ListItem) {
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
		c.addStep(nil)
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

// markLength is the length of the job's mark in the tokens that it gives; the rest
// is a number.
const markLength = 8

// item returns the message as an item with a new token.
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

// rows returns the items of rows, whose messages do not show whether the job has moved them.
func (d *draft) rows() (rows []item) {
	for _, it := range d.items {
		if d.Spec.moves() && message.IsOutboxToken(it.Life) {
			rows = append(rows, it)
		}
	}
	return rows
}

// addStep takes the tokens under which the job has moved messages of rows already. The other
// items make up the step.
func (c *course) addStep(moved map[string]bool) {
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

// matched counts a message, once: one that was in flight before was counted already.
func (r *record) matched(member string) {
	if at := slices.Index(r.Left, member); at >= 0 {
		r.Left = slices.Delete(r.Left, at, at+1)
		r.Tally.TooLate--
		return
	}
	r.Tally.Matched++
}

// broken counts an unreadable message, once: it may be met by its place and by its name.
func (r *record) broken(member string) {
	if slices.Contains(r.Broken, member) {
		return
	}
	r.matched(member)
	if r.Tally.Failed++; len(r.Broken) < mostLeft {
		r.Broken = append(r.Broken, member)
	}
}

// saved takes the result of a write: the record is in Redis, and the runner has the job until leased.
func (c *course) saved(leased time.Time, isTold bool) {
	c.record, c.leased, c.isTold, c.draft = c.draft.record, leased, isTold, nil
	if c.do = actionRest; c.record.State == Running && c.record.Step != nil {
		c.do = actionChange
	}
}

// changed takes the answers for the messages of the step, and returns how many have one.
// Redis may have forgotten the answers of an earlier run by now.
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
		} else { // Beyond mostLeft, messages are only counted.
			r.More++
		}
	default:
		if r.Rest = append(r.Rest, member); isForgotten { // Only others can have changed it.
			t.Unknown++
		} else {
			t.Gone++
		}
	}
}
