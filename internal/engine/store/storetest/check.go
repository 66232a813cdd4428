package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/sound"
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
	found := sound.Sum(s.counters(), int64(len(s.Due)+len(inFlight)+len(s.Dead)))
	indexed := map[string]bool{}
	for _, m := range s.messages(inFlight) {
		found = append(found, m.Check()...)
		for _, tag := range m.Tags() {
			indexed[sound.TagEntry(tag, m.Member)] = true
		}
	}
	found = append(found, sound.Unpaired(indexed, sound.NoTag, s.Tags, sound.StrayTag)...)
	found = append(found, sound.Unpaired(s.Claims, sound.NoDeadline, s.Deadlines, sound.NoClaim)...)
	found = append(found, sound.Unpaired(s.Gone, sound.NoExpiry, s.GoneTTL, sound.NoTombstone)...)
	for _, f := range found {
		complain("%s", f)
	}
	for id, end := range s.Ends {
		if _, err := message.ParseEnd(end, time.Time{}); err != nil {
			complain("%q in the history: %w", id, err)
		}
	}
	return errors.Join(broken...)
}

// counters are all counters of the meta.
func (s *Shard) counters() map[string]int64 {
	counters := map[string]int64{}
	for name := range s.Meta {
		counters[name] = s.Counter(name)
	}
	return counters
}

// messages are what the keys have under each identity that any of them has.
func (s *Shard) messages(inFlight map[string]int64) map[string]*sound.Message {
	all := map[string]*sound.Message{}
	of := func(id string) *sound.Message {
		if all[id] == nil {
			all[id] = &sound.Message{Member: id}
		}
		return all[id]
	}
	for id := range s.Due {
		of(id).Waits = true
	}
	for id := range inFlight { // None is in two claims, InFlight says.
		of(id).Claims = 1
	}
	for id := range s.Dead {
		of(id).Dead = true
	}
	for id, stored := range s.Msg {
		of(id).Stored = &stored
	}
	for id, attempts := range s.Attempts {
		of(id).Attempts = &attempts
	}
	for id, letter := range s.DeadMsg {
		of(id).Letter = &letter
	}
	return all
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
