package inspect

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// Limits of a listing.
const (
	// MaxList limits how many messages one call of [Admin.List] returns.
	MaxList = 1000
	// MaxLooked limits how many messages one call reads: a message that the
	// filter rejects costs as much as one that it accepts.
	MaxLooked = 20_000
)

// State is where a message is.
type State string

// The states, in the order in which they are listed: a message that proceeds during
// a listing moves from an earlier state to a later one, except by a retry.
const (
	StateScheduled State = "scheduled"
	StateParked    State = "parked"
	StateInFlight  State = "in_flight"
	StateDead      State = "dead"
)

var states = []State{StateScheduled, StateParked, StateInFlight, StateDead}

// Filter selects messages. The zero value selects all.
type Filter struct {
	// State, if not empty, is their state.
	State State
	// Topic, Key and IDPrefix, if not empty, are theirs.
	Topic, Key, IDPrefix string
	// Tag, if not empty, is one of their tags.
	Tag string
	// Reason, if not empty, is the exact reason why they are dead; ReasonContains is a part
	// of it. One of them suffices: a part of another reason is refused.
	Reason, ReasonContains string
	// From and To, if not zero, limit their due times: From is included, To is not.
	// A retry counts by the time of its next attempt.
	From, To time.Time
}

// ListRequest asks for a page of a listing.
type ListRequest struct {
	Filter
	// Limit is how many messages to return at most, 1 to [MaxList].
	Limit int
	// After is where the previous page ended, see [Page]; empty for the first page.
	After string
}

// ListItem is a message of a listing.
type ListItem struct {
	Found Snapshot
	State State
}

// Member names the message within its shard.
func (m *ListItem) Member() string { return message.Member(m.Found.ID, m.Found.Key) }

// Page is a part of a listing.
type Page struct {
	// Messages are in due order within a state, dead letters in the order in which
	// they died. With a Tag in the filter they are in the order of key and id,
	// whatever their state. A page may be empty although more pages follow.
	Messages []ListItem
	// Looked is how many messages were read for it, at most 20,000.
	Looked int
	// Next is where the next page begins; empty on the last page.
	Next string
}

// ErrListRequest is returned for an invalid request; the error names the field.
var ErrListRequest = errors.New("invalid list request")

// List returns messages of all shards, with their bodies. A page costs a bounded
// amount of work, so a filter that matches little may take many pages. A message
// that does not move during the listing is in it exactly once. One that is retried
// meanwhile may be missing, and one that is rescheduled may be there twice.
func (a *Admin) List(ctx context.Context, r ListRequest) (page Page, err error) {
	at, err := r.check()
	if err != nil {
		return Page{}, fmt.Errorf("%w: %w", ErrListRequest, err)
	}
	err = a.queue.Repeat(ctx, func(layout *store.Layout) error {
		l := &lister{queue: a.queue, layout: layout, request: &r, budget: MaxLooked}
		page, err = l.list(ctx, at)
		page.Looked = MaxLooked - l.budget
		return err
	})
	return page, err
}

// Check returns the error that [Admin.List] would return for the request, without its kind.
func (r ListRequest) Check() error {
	_, err := r.check()
	return err
}

// check validates the request and returns where the listing continues.
func (r *ListRequest) check() (at place, err error) {
	switch {
	case r.Limit < 1 || r.Limit > MaxList:
		return at, fmt.Errorf("limit %d: must be 1 to %d", r.Limit, MaxList)
	case r.State != "" && !slices.Contains(states, r.State):
		return at, fmt.Errorf("state %q: must be scheduled, parked, in_flight or dead", r.State)
	case !r.From.IsZero() && !r.To.IsZero() && !r.From.Before(r.To):
		return at, fmt.Errorf("due from %s is not before due to %s", r.From.Format(message.TimeFormat), r.To.Format(message.TimeFormat))
	case (r.Reason != "" || r.ReasonContains != "") && r.State != "" && r.State != StateDead:
		return at, fmt.Errorf("state %q: only dead letters have a reason", r.State)
	case r.Reason != "" && !strings.Contains(r.Reason, r.ReasonContains):
		return at, fmt.Errorf("reason_contains %q: is not a part of reason %q, so nothing could match", r.ReasonContains, r.Reason)
	case r.Tag != "":
		if err := message.CheckTag(r.Tag); err != nil {
			return at, err
		}
	}
	if r.Reason != "" || r.ReasonContains != "" {
		r.State = StateDead
	}
	switch {
	case r.After == "" && r.Tag != "":
		return place{state: taggedPlace}, nil
	case r.After == "":
		return place{state: max(0, slices.Index(states, r.State))}, nil // Without a state, list all of them.
	}
	if at, err = parsePlace(r.After); err != nil {
		return at, fmt.Errorf("cursor %q %w", r.After, err)
	}
	if (at.state == taggedPlace) != (r.Tag != "") {
		return at, fmt.Errorf("cursor %q is that of a listing with another tag", r.After)
	}
	return at, nil
}

// taggedPlace stands for all states in a listing by tag.
var taggedPlace = len(states)

// place is the position after a message in the order of a listing, which is that
// of Redis: by state, score and id.
type place struct {
	state  int
	begun  bool // there is such a message
	score  int64
	member string
}

var errPlace = errors.New("was not returned by a listing")

// String encodes the place as a cursor for callers.
func (p place) String() string {
	text := strconv.Itoa(p.state)
	if p.begun {
		text += " " + strconv.FormatInt(p.score, 10) + " " + p.member
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

func parsePlace(s string) (p place, err error) {
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return p, errPlace
	}
	state, rest, begun := strings.Cut(string(text), " ")
	if p.state, err = strconv.Atoi(state); err != nil || p.state < 0 || p.state > taggedPlace {
		return p, errPlace
	}
	if !begun {
		return p, nil
	}
	score, member, isWhole := strings.Cut(rest, " ")
	if p.score, err = strconv.ParseInt(score, 10, 64); err != nil || !isWhole {
		return p, errPlace
	}
	p.begun, p.member = true, member
	return p, nil
}
