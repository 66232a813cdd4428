package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// candidatesShown is how many messages of one id are listed.
const candidatesShown = 20

// find looks for the message that the flags name. Without a key that is the
// message without one or, if there is none, the only one of that id.
func (s *session) find(id string, key *string) (operate.FoundMessage, error) {
	found, err := s.locate(id, key)
	if err == nil && found.HasEnded {
		err = delay.ErrNotFound
	}
	return found, err
}

// locate is find that also finds messages that have ended.
func (s *session) locate(id string, key *string) (operate.FoundMessage, error) {
	if err := invalidIdentity(id, deref(key)); err != nil {
		return operate.FoundMessage{}, err
	}
	found, err := s.Get(s.ctx, delay.Ref{ID: id, Key: deref(key)})
	switch {
	case errors.Is(err, delay.ErrNoLayout):
		return found, delay.ErrNotFound // Nobody has ever used the queue.
	case err != nil && !errors.Is(err, delay.ErrNotFound), err == nil && !found.HasEnded, key != nil:
		return found, err
	}
	s.resetTimer()
	if other, elsewhere := s.findAnywhere(id); err != nil || !errors.Is(elsewhere, delay.ErrNotFound) {
		return other, elsewhere
	}
	return found, nil
}

func (s *session) findAnywhere(id string) (found operate.FoundMessage, err error) {
	var members []string
	err = s.walk(func() (err error) {
		members, err = inspect.Find(s.ctx, s.Store, id, candidatesShown)
		return err
	})
	switch {
	case errors.Is(err, inspect.ErrTooMany):
		return found, ambiguous(id, fmt.Sprintf("more than %d messages have that id", candidatesShown))
	case err != nil:
		return found, err
	case len(members) == 0:
		return found, delay.ErrNotFound
	case len(members) > 1:
		keys := make([]string, len(members))
		for i, member := range members {
			_, key := message.SplitMember(member)
			keys[i] = fmt.Sprintf("--key %q", key)
		}
		return found, ambiguous(id, fmt.Sprintf("%d messages have that id:\n  %s", len(members), strings.Join(keys, "\n  ")))
	}
	_, key := message.SplitMember(members[0])
	return s.Get(s.ctx, delay.Ref{ID: id, Key: key})
}

func ambiguous(id, text string) error {
	return &failure{code: "ambiguous", exit: exitRefused, id: id, text: fmt.Sprintf("which %q? %s", id, text)}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
