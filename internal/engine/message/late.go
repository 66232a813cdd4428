package message

import (
	"strings"
	"time"
)

// LateAction says what happens to a message that is too late.
type LateAction string

// The actions. The empty one is LatePublish.
const (
	// LatePublish publishes it however late.
	LatePublish LateAction = "publish"
	// LateDead sends it to the dead letters.
	LateDead LateAction = "dead"
	// LateDrop removes it, counted and logged.
	LateDrop LateAction = "drop"
)

// Late says how late a message may be published, counted from its promised due time,
// and what happens to it after that.
type Late struct {
	After time.Duration
	Then  LateAction
}

// IsOver reports whether a message that was due then is too late now.
func (l Late) IsOver(due, now time.Time) bool {
	return (l.Then == LateDead || l.Then == LateDrop) && now.Sub(due) > l.After
}

// Judge returns the verdict on a message that is too late to be published now. A
// message of which a copy may be out is published again instead of dropped, because
// "dropped" might be untrue.
func (l Late) Judge(m *ClaimedMessage, now time.Time) (verdict Verdict, isLate bool) {
	if !l.IsOver(m.DueAt, now) {
		return Verdict{}, false
	}
	mayBeOut := m.Attempts.MaybeOut > 0
	// The reason is the same for all messages, so that one can redrive by reason; the message's times say
	// how late it was.
	reason := "late: more than " + Brief(l.After)
	if l.Then == LateDrop {
		return Verdict{Verb: VerbDrop, Attempts: m.Attempts, Reason: reason}, !mayBeOut
	}
	return Verdict{Verb: VerbDeadLetter, Attempts: m.Attempts, Published: mayBeOut, Reason: reason}, true
}

// Brief formats a duration without trailing zeros.
func Brief(d time.Duration) string {
	text := d.Round(time.Millisecond).String()
	if d >= time.Minute {
		text = d.Round(time.Second).String()
		for _, zero := range []string{"m0s", "h0m"} {
			if whole, isZero := strings.CutSuffix(text, zero); isZero {
				text = whole + zero[:1]
			}
		}
	}
	return text
}

func (l Late) String() string { return string(l.Then) + " " + l.After.String() }

func (l Late) check() error {
	switch {
	case l.Then != LatePublish && l.Then != LateDead && l.Then != LateDrop:
		return &InvalidError{Field: "late", Value: string(l.Then), Limit: "allowed are publish, dead and drop"}
	case l.Then != LatePublish && l.After < time.Millisecond:
		return &InvalidError{Field: "late", Value: l.After.String(), Limit: "allowed are 1ms and more"}
	}
	return nil
}

func parseLate(text string) (l Late, err error) {
	then, after, _ := strings.Cut(text, " ")
	if l.After, err = time.ParseDuration(after); err != nil {
		return Late{}, &InvalidError{Field: "late", Value: text, Limit: "must be an action and a duration"}
	}
	l.Then = LateAction(then)
	return l, l.check()
}
