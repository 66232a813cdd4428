package job

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

var errFault = errors.New("away")

// heap is the world of a job's story: messages that others move, and a record that runners fight for.
type heap struct {
	t        *rapid.T
	now      time.Time
	spec     Spec
	messages map[string]*modelMessage
	marked   map[string]bool // tokens under which a message of a row was moved
	answers  map[string]store.Code
	isMoving bool // others are about
	isFaulty bool // and calls fail, until the end
	isSlow   bool // a minute may pass between two runs of a change

	kept       string // the record
	owner      *actor
	until      time.Time
	isStopping bool
	hasEnded   bool

	turn, scanned int // now, and when names were read first; 0: not yet
	broken        int64
	rounds        int // that look at what was in flight, since nothing moves
}

// modelMessage is a message: one in no state has ended.
type modelMessage struct {
	state    inspect.State
	place    int
	token    string
	isBroken bool // it cannot be read
	isGhost  bool // it has a place and no text
	isLater  bool // it came after the job
	changes  int  // by the job
	movedAt  int  // the turn, by others
}

// actor is a runner.
type actor struct {
	course course
	before string // its record before the step
	most   int    // messages of the step
	isTold bool   // to stop
	isOver bool   // it has lost the job
}

func (h *heap) chance(of int, what string) bool {
	return h.isFaulty && rapid.IntRange(1, of).Draw(h.t, what) == 1
}

func (h *heap) fault(what string) error {
	if h.chance(6, what) {
		return errFault
	}
	return nil
}

// move has others do something to messages.
func (h *heap) move() {
	if !h.chance(3, "moves") {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(h.messages)) {
		m := h.messages[name]
		switch {
		case !h.chance(5, "move"):
			continue
		case m.state == inspect.StateInFlight:
			m.state = rapid.SampledFrom([]inspect.State{"", inspect.StateScheduled, inspect.StateParked, inspect.StateDead}).Draw(h.t, "settled")
			m.place += rapid.IntRange(0, 5).Draw(h.t, "later")
		case m.state == inspect.StateScheduled, m.state == inspect.StateParked:
			switch rapid.IntRange(0, 6).Draw(h.t, "how") {
			case 0:
				m.state, m.token, m.isLater, m.isBroken = inspect.StateScheduled, "theirs-"+name+"-----", true, false
			case 1:
				if !message.IsOutboxToken(m.token) && m.changes == 0 && !m.isBroken {
					m.state, m.token, m.place = inspect.StateScheduled, fmt.Sprintf("moved-%010d", h.turn), m.place+5
				}
			default:
				m.state = inspect.StateInFlight
			}
		}
		m.movedAt = h.turn
	}
}

// listed is a message as the job sees it; nil where its filter leaves it out.
func (h *heap) listed(name string) *inspect.ListItem {
	m := h.messages[name]
	if s := h.spec.Filter.State; m == nil || m.state == "" || s != "" && s != m.state {
		return nil
	}
	l := &inspect.ListItem{State: m.state, Found: inspect.Snapshot{Message: message.Message{ID: name, Token: m.token}}}
	if m.isLater {
		l.Found.ScheduledAt, l.Found.DiedAt = h.now.Add(time.Hour), h.now.Add(time.Hour)
	}
	if m.isBroken {
		l.Found.Err, l.Found.Token = errFault, "unreadable"
	}
	return l
}

// list is a page of one state, or of all by name, behind the cursor.
func (h *heap) list(r inspect.ListRequest) (page inspect.Page) {
	require.LessOrEqual(h.t, r.Limit, stepSize)
	at := func(name string) string {
		if r.Tag != "" {
			return name
		}
		return fmt.Sprintf("%04d %s", h.messages[name].place, name)
	}
	names := slices.SortedFunc(maps.Keys(h.messages), func(a, b string) int { return cmp.Compare(at(a), at(b)) })
	for _, name := range names {
		if at(name) <= r.After || r.State != "" && h.messages[name].state != r.State {
			continue
		}
		if len(page.Messages) == r.Limit {
			return page
		}
		if l := h.listed(name); l != nil && !h.messages[name].isGhost {
			page.Messages, page.Next = append(page.Messages, *l), at(name)
		}
	}
	page.Next = ""
	return page
}

// scan is a page of names.
func (h *heap) scan(at inspect.ScanPlace) (page inspect.NamesPage) {
	n := rapid.IntRange(1, 4).Draw(h.t, "names")
	h.scanned = cmp.Or(h.scanned, h.turn)
	page.Looked, page.After, page.IsLast = n, at, true
	for _, name := range slices.Sorted(maps.Keys(h.messages)) {
		if name <= at.Cursor {
			continue
		}
		if n--; n < 0 {
			page.IsLast = false
			break
		}
		page.After.Cursor = name
		switch l := h.listed(name); {
		case l == nil || l.State == inspect.StateDead:
		case h.messages[name].isGhost, h.chance(6, "moved"):
			page.Moved = append(page.Moved, name)
		default:
			page.Messages = append(page.Messages, *l)
		}
	}
	return page
}

// change is one run of what the job wants of a message.
func (h *heap) change(it item) store.Answer {
	if code, ok := h.answers[it.Token]; ok {
		return store.Answer{Code: code}
	}
	m := h.messages[it.Member]
	require.False(h.t, m.isGhost)
	var record record
	require.NoError(h.t, json.Unmarshal([]byte(h.kept), &record))
	require.True(h.t, record.Step != nil && slices.Contains(record.Step.Items, it), "%s is changed and not written down", it.Member)
	switch {
	case m.state == "" || it.Life != "" && it.Life != m.token || it.Life == "" && !m.isBroken: // That is of another topic.
		return store.Answer{Code: store.NotFound}
	case m.state == inspect.StateInFlight:
		return store.Answer{Code: store.InFlight}
	case h.spec.moves():
		require.False(h.t, m.isBroken)
		if m.state, m.place = inspect.StateScheduled, m.place+rapid.IntRange(-9, 9).Draw(h.t, "place"); message.IsOutboxToken(m.token) {
			h.marked[it.Token] = true
		} else {
			m.token = it.Token
		}
	default:
		m.state = ""
	}
	m.changes++
	require.False(h.t, m.isLater, "%s came after the job", it.Member)
	require.Equal(h.t, 1, m.changes, "%s is changed twice", it.Member)
	h.answers[it.Token] = store.Done
	return store.Answer{Code: store.Done}
}

// keep is the script of that name.
func (h *heap) keep(a *actor, r *record) error {
	if h.owner != a || h.hasEnded {
		return ErrLost
	}
	if r.Step != nil && a.course.record.Step == nil {
		require.LessOrEqual(h.t, len(r.Step.Items), a.most)
	}
	if err := h.fault("not kept"); err != nil {
		return err
	}
	if h.kept, h.until, h.hasEnded = text(h.t, r), h.now.Add(lease), r.State.Ended(); r.State == Waiting {
		h.until = h.now.Add(-1)
	}
	asked := h.now
	h.wait()
	if err := h.fault("kept unheard"); err != nil {
		return err
	}
	a.course.saved(asked.Add(lease), h.isStopping)
	a.isTold = h.isStopping
	return nil
}

func text(t *rapid.T, r *record) string {
	text, err := json.Marshal(r)
	require.NoError(t, err)
	return string(text)
}

// take has another runner take the job, if it may.
func (h *heap) take() *actor {
	if h.owner != nil && !h.now.After(h.until) {
		return nil
	}
	a := &actor{}
	require.NoError(h.t, json.Unmarshal([]byte(h.kept), &a.course.record))
	a.course.record.State, a.course.isTold = Running, h.isStopping
	h.owner, h.until = a, h.now.Add(lease)
	return a
}

func (h *heap) wait() {
	h.now = h.now.Add(time.Millisecond)
	if h.chance(5, "late") {
		h.now = h.now.Add(time.Duration(rapid.IntRange(0, 12).Draw(h.t, "seconds")) * time.Second)
	}
	if h.isSlow && h.chance(20, "forgotten") {
		h.now = h.now.Add(2 * time.Minute)
		maps.DeleteFunc(h.answers, func(token string, _ store.Code) bool { return !h.marked[token] })
	}
}

// act has a runner do what its course says.
func (h *heap) act(a *actor) (err error) {
	c := &a.course
	if c.do == actionBegin {
		a.before, a.most = text(h.t, &c.record), rapid.SampledFrom([]int{1, 2, 5, 1000}).Draw(h.t, "most")
	}
	do := c.next(h.now, a.most)
	h.wait()
	require.LessOrEqual(h.t, len(do.names), a.most)
	require.False(h.t, a.isTold && do.kind < actionKeep, "it goes on though it was told to stop")
	if do.kind < actionKeep {
		if err := h.fault("asked"); err != nil {
			return err
		}
	}
	switch do.kind {
	case actionList:
		c.listed(h.list(do.list))
	case actionScan:
		c.scanned(h.scan(do.scan))
	case actionLook:
		var found []inspect.ListItem
		var moved []string
		for _, name := range do.names {
			if l := h.listed(name); l != nil && (h.messages[name].isGhost || h.chance(6, "moved")) {
				moved = append(moved, name)
			} else if l != nil {
				found = append(found, *l)
			}
		}
		c.looked(found, moved)
	case actionAsk:
		require.NotEmpty(h.t, do.items)
		c.addStep(h.marked)
	case actionKeep:
		return h.keep(a, do.record)
	case actionChange:
		answers := make([]store.Answer, len(do.items))
		for i, it := range do.items {
			if answers[i].Err = h.fault("not run"); answers[i].Err != nil {
				continue
			}
			h.wait()
			if h.now.After(do.until.Add(margin - 1)) {
				answers[i].Err = errFault
				continue
			}
			require.Same(h.t, a, h.owner, "a run takes effect when the job is another's")
			answers[i] = h.change(it)
			if err := h.fault("lost"); err != nil {
				answers[i].Err = err
			}
		}
		h.wait()
		c.changed(h.now, answers)
	case actionBegin, actionRest:
	}
	return nil
}

// TestCourse plays stories of a job, alone: messages move, calls fail, runners die, or go on where
// others have taken the job.
func TestCourse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := time.Now()
		h := &heap{
			t: t, now: start, messages: map[string]*modelMessage{}, marked: map[string]bool{}, answers: map[string]store.Code{},
			isMoving: rapid.Bool().Draw(t, "moving"), isSlow: rapid.IntRange(0, 3).Draw(t, "slow") == 0,
		}
		h.isFaulty = h.isMoving
		h.spec.Verb = rapid.SampledFrom([]Verb{Cancel, Reschedule, Redrive, Purge}).Draw(t, "verb")
		h.spec.Filter = rapid.SampledFrom([]inspect.Filter{
			{Topic: "t"}, {Topic: "t"}, {Tag: "sale"}, {State: inspect.StateScheduled}, {State: inspect.StateInFlight}, {State: inspect.StateDead},
		}).Draw(t, "filter")
		h.spec.DryRun = !h.isFaulty && rapid.IntRange(0, 3).Draw(t, "dry") == 0
		if h.spec.Verb == Redrive || h.spec.Verb == Purge {
			h.spec.Filter.State = inspect.StateDead
		}
		for i := range rapid.IntRange(0, 8).Draw(t, "messages") {
			m := &modelMessage{place: rapid.IntRange(100, 120).Draw(t, "place"), token: fmt.Sprintf("token-%010d", i)}
			m.state = rapid.SampledFrom([]inspect.State{inspect.StateScheduled, inspect.StateScheduled, inspect.StateParked, inspect.StateInFlight, inspect.StateDead}).Draw(t, "state")
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				m.token = fmt.Sprintf("~%015d", i)
			case 1:
				m.isBroken = true
				h.broken++
			case 2:
				m.isLater = true
			case 3:
				m.isGhost = rapid.IntRange(0, 3).Draw(t, "ghost") == 0
			}
			h.messages[fmt.Sprintf("m-%02d", i)] = m
		}
		h.kept = text(t, &record{Job: Job{ID: "job", Spec: h.spec, State: Waiting, StartedAt: start}, Mark: "thismark"})
		meant := map[string]bool{}
		for name, m := range h.messages {
			meant[name] = h.listed(name) != nil && !m.isLater && !m.isGhost
		}

		var actors []*actor
		isLong := rapid.IntRange(0, 30).Draw(t, "long") == 0
		if isLong {
			h.now = h.now.Add(life + time.Second)
		}
		for h.turn = 1; !h.hasEnded; h.turn++ {
			require.Less(t, h.turn, 5000, "it does not end")
			if h.turn > 300 {
				h.isFaulty = false
			}
			if len(actors) == 0 || h.chance(10, "another") || !h.isFaulty && actors[len(actors)-1].isOver {
				if h.owner != nil && (!h.isFaulty || h.chance(2, "dies")) { // Or else it goes on, and knows nothing of that.
					h.now = h.now.Add(lease + 1)
				}
				if a := h.take(); a != nil {
					actors = append(actors, a)
				}
				continue
			}
			h.move()
			if h.chance(200, "stop") {
				h.isStopping = true
			}
			a := actors[len(actors)-1]
			if h.chance(4, "the one before") {
				a = actors[max(0, len(actors)-2)]
			}
			a.isOver = a.isOver || a.course.do == actionBegin && a.course.record.State == Waiting // It was released.
			if a.isOver {
				continue
			}
			if c := &a.course; c.waits() && c.do == actionBegin {
				if !h.isFaulty {
					h.rounds++
				}
				if h.rounds > 2 {
					a.before = text(t, &c.record)
					c.finish(h.now)
				}
			} else if c.do == actionBegin && h.chance(30, "release") {
				a.before = text(t, &c.record)
				c.release()
			}
			if err := h.act(a); err != nil {
				a.course.discard()
				require.Equal(t, a.before, text(t, &a.course.record), "what failed has left something")
				a.isOver = errors.Is(err, ErrLost)
			}
		}
		if isLong {
			require.True(t, h.isStopping || strings.Contains(h.kept, "it took longer than"))
			return
		}
		h.check(meant)
	})
}

// check holds the job that has ended against what has become of the messages.
func (h *heap) check(meant map[string]bool) {
	var found record
	require.NoError(h.t, json.Unmarshal([]byte(h.kept), &found))
	tally, changes, left := found.Tally, int64(0), int64(0)
	require.Nil(h.t, found.Step)
	require.True(h.t, found.State != Done || len(found.Rest) == 0)
	require.True(h.t, h.now.Sub(found.StartedAt) > remembered || tally.Unknown == 0)
	require.LessOrEqual(h.t, tally.Failed, h.broken)
	require.Equal(h.t, tally.Matched*(1-int64(flag(h.spec.DryRun))), tally.Done+tally.TooLate+tally.Gone+tally.Failed+tally.Unknown, "%+v", tally)
	for name, m := range h.messages {
		changes += int64(m.changes)
		isThere := !m.isLater && !m.isGhost && m.changes == 0 && h.listed(name) != nil && (!m.isBroken || !h.spec.moves())
		if isThere {
			left++
		}
		if h.spec.Filter.State == inspect.StateScheduled && (h.scanned == 0 || m.movedAt < h.scanned) {
			require.False(h.t, isThere && found.State == Done && !h.spec.DryRun && h.spec.Verb != Purge && h.spec.Verb != Redrive, "%s was missed", name)
		}
		if isThere && found.State == Done && !h.spec.DryRun && m.state != inspect.StateInFlight && (h.spec.Filter.State == "" || h.spec.Filter.State == inspect.StateDead && meant[name]) {
			require.Fail(h.t, "a message was missed", name)
		}
	}
	require.LessOrEqual(h.t, tally.Done, changes)
	require.GreaterOrEqual(h.t, tally.Done+tally.Unknown, changes)
	switch {
	case h.spec.DryRun:
		require.Equal(h.t, int64(len(slices.DeleteFunc(slices.Collect(maps.Keys(meant)), func(n string) bool { return !meant[n] }))), tally.Matched)
		require.Zero(h.t, changes)
		require.Nil(h.t, found.Remaining)
	case found.State == Done && h.spec.Filter.State == "":
		require.Equal(h.t, left, *found.Remaining-tally.Failed)
	case found.State == Stopped:
		require.Nil(h.t, found.Remaining)
	}
}

func flag(is bool) int {
	if is {
		return 1
	}
	return 0
}

// TestLookedAtByName: what has moved is looked at again, what is found is tried again, and what is
// not there is left no longer.
func TestLookedAtByName(t *testing.T) {
	t.Parallel()
	spec := Spec{Verb: Cancel, Filter: inspect.Filter{Topic: "t"}}
	c := &course{record: record{Job: Job{Spec: spec, State: Running, Tally: Tally{Matched: 4, TooLate: 4}}, Part: len(spec.walk()), Left: []string{"found", "moved", "gone", "later"}}}
	now := c.record.StartedAt
	require.Equal(t, []string{"found", "moved", "gone"}, c.next(now, 3).names)
	c.looked([]inspect.ListItem{{Found: inspect.Snapshot{Message: message.Message{ID: "found"}}}}, []string{"moved"})
	next := c.next(now, 3).record
	require.Equal(t, []string{"later", "moved"}, next.Rest)
	require.Equal(t, []string{"moved", "later"}, next.Left)
	require.Equal(t, "found", next.Step.Items[0].Member)
	require.Equal(t, Tally{Matched: 4, TooLate: 3}, next.Tally)

	next.Step = nil
	for range mostMoves { // They have a place, and no text.
		c.saved(now, false)
		require.Equal(t, actionRest, c.next(now, 3).kind)
		c.looked(nil, c.next(now, 3).names)
		next = c.next(now, 3).record
		require.Len(t, next.Rest, 2)
	}
	c.saved(now, false)
	c.next(now, 3)
	c.looked(nil, c.next(now, 3).names)
	next = c.next(now, 3).record
	require.Empty(t, next.Rest)
	require.Empty(t, next.Left)
}

// TestLooksAgain: what had moved when its name was read, and what others have changed since it was
// matched, is looked at by its name.
func TestLooksAgain(t *testing.T) {
	t.Parallel()
	c := &course{record: record{Job: Job{Spec: Spec{Verb: Cancel, Filter: inspect.Filter{State: inspect.StateInFlight}}, State: Running}}}
	now := c.record.StartedAt
	require.Equal(t, actionScan, c.next(now, 1).kind)
	found := func(id string) inspect.ListItem {
		return inspect.ListItem{Found: inspect.Snapshot{Message: message.Message{ID: id}}}
	}
	c.scanned(inspect.NamesPage{Messages: []inspect.ListItem{found("a"), found("b")}, Moved: []string{"moved"}, Looked: 3, IsLast: true})
	require.Equal(t, []string{"moved", "b"}, c.next(now, 1).record.Rest)
	c.saved(now, false)
	require.Equal(t, 1, c.changed(now, []store.Answer{{Code: store.NotFound}}))
	require.Equal(t, []string{"moved", "b", "a"}, c.record.Rest)
	require.Equal(t, Tally{Matched: 1, Gone: 1}, c.record.Tally)
}
