package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store/layout"
)

// Check reports every broken part of I6: what was accepted is
// somewhere and counted once, every id has a body and every body an id, every
// claim a deadline, every tombstone an expiry, every tag its entries. Poison
// entries break it.
func (s *Shard) Check() error {
	inFlight, err := s.InFlight()
	if err != nil {
		return err
	}
	var broken []error
	complain := func(format string, args ...any) { broken = append(broken, fmt.Errorf(format, args...)) }
	if s.Meta["epoch"] == "" {
		complain("meta has no epoch")
	}
	for name, value := range s.Meta {
		if name == "epoch" || name == "layout" || name == "drained" || name == "budget" || name == layout.BornField {
			continue
		}
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < 0 {
			complain("counter %s is %q", name, value)
		}
	}
	accepted := s.Counter("scheduled")
	present := int64(len(s.Due) + len(inFlight) + len(s.Dead))
	ended := s.Counter("published") + s.Counter("cancelled") + s.Counter("replaced") + s.Counter("purged") + s.Counter("dropped")
	if accepted != present+ended {
		complain("scheduled %d, but %d wait, %d in flight, %d dead, %d published, %d cancelled, %d replaced, %d purged, %d dropped",
			accepted, len(s.Due), len(inFlight), len(s.Dead),
			s.Counter("published"), s.Counter("cancelled"), s.Counter("replaced"), s.Counter("purged"), s.Counter("dropped"))
	}
	s.checkMessages(inFlight, complain)
	sameKeys(s.Tags, s.tagged(), "tags", "messages", complain)
	sameKeys(s.Claims, s.Deadlines, "claims", "deadlines", complain)
	sameKeys(s.Gone, s.GoneTTL, "gone", "gonettl", complain)
	sameKeys(s.Dead, s.DeadMsg, "dead", "deadmsg", complain)
	for id, end := range s.Ends {
		if _, err := message.ParseEnd(end, time.Time{}); err != nil {
			complain("%q in the history: %w", id, err)
		}
	}
	return errors.Join(broken...)
}

func (s *Shard) checkMessages(inFlight map[string]int64, complain func(string, ...any)) {
	for id := range s.Due {
		if s.Msg[id] == "" {
			complain("%q is due and has no body", id)
		}
		if _, claimed := inFlight[id]; claimed {
			complain("%q is due and claimed", id)
		}
	}
	for id := range inFlight {
		if s.Msg[id] == "" {
			complain("%q is claimed and has no body", id)
		}
	}
	for id, stored := range s.Msg {
		_, waits := s.Due[id]
		if _, claimed := inFlight[id]; !waits && !claimed {
			complain("%q has a body and is neither due nor claimed", id)
		}
		if _, dead := s.Dead[id]; dead {
			complain("%q lives and is dead", id)
		}
		if err := new(message.Message).Decode(stored); err != nil {
			complain("%q: %w", id, err)
		}
	}
	for id, counts := range s.Attempts {
		if _, lives := s.Msg[id]; !lives {
			complain("attempts of %q, which is not there", id)
		}
		if _, err := message.ParseHistory(counts); err != nil {
			complain("%q: %w", id, err)
		}
	}
}

// tagged are the entries that the index of tags should have.
func (s *Shard) tagged() map[string]bool {
	entries := map[string]bool{}
	add := func(id string, m *message.Message) {
		for _, tag := range m.Tags() {
			entries[tag+"\x00"+id] = true
		}
	}
	for id, stored := range s.Msg {
		var m message.Message
		_ = m.Decode(stored) // Complained of above.
		add(id, &m)
	}
	for id, stored := range s.DeadMsg {
		letter := message.DecodeDeadLetter(id, stored)
		add(id, &letter.Message)
	}
	return entries
}

func sameKeys[A, B any](a map[string]A, b map[string]B, nameA, nameB string, complain func(string, ...any)) {
	inA, inB := slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b))
	if !slices.Equal(inA, inB) {
		complain("%s has %q, %s has %q", nameA, inA, nameB, inB)
	}
}

var errPacked = errors.New("packed wrongly")

// unpack takes the first "length:score:id" of a packed claim.
func unpack(packed string) (id string, score int64, rest string, err error) {
	length, rest, _ := strings.Cut(packed, ":")
	scoreText, rest, found := strings.Cut(rest, ":")
	n, errLength := strconv.Atoi(length)
	score, errScore := strconv.ParseInt(scoreText, 10, 64)
	if !found || errLength != nil || errScore != nil || n < 0 || n > len(rest) {
		return "", 0, "", fmt.Errorf("%w: %q", errPacked, packed)
	}
	return rest[:n], score, rest[n:], nil
}
