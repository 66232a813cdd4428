package outbox

import (
	"context"
	"time"
)

// sweep is how a lane goes through the table. Queues that are well share a batch,
// which always begins with what is due first. A queue of which rows had to wait
// has batches of its own, which go on where the last one ended, so that rows that
// cannot be stored keep neither those behind them waiting nor other queues. It
// belongs to one goroutine.
type sweep struct {
	troubled map[string]*trouble
}

// trouble is a queue of which rows had to wait.
type trouble struct {
	backoff
	until time.Time // it rests until then
	after cursor
}

// cursor is the last row of the batch before. It returns to the beginning at the
// end of the table, so nothing is skipped.
type cursor struct {
	loadMs, number int64
}

// tally is how the rows of a queue fared in a batch.
type tally struct {
	settled, waiting int
	err              error // one of those why rows wait, if any is known
}

// outcome is how a batch went.
type outcome struct {
	tallies map[string]*tally
	last    cursor
	full    bool // more rows may be behind last
}

// each runs a batch of the queues that are well, and one of each troubled queue
// that does not rest; more says that another may be had at once.
func (s *sweep) each(ctx context.Context, names []string, run func(queues []string, after cursor) (outcome, error)) (more bool, err error) {
	var well, unwell []string
	for _, name := range names {
		if t := s.troubled[name]; t == nil {
			well = append(well, name)
		} else if !time.Now().Before(t.until) {
			unwell = append(unwell, name)
		}
	}
	if len(well) > 0 {
		o, err := run(well, cursor{})
		if err != nil {
			return false, err
		}
		s.note(o)
		more = o.full
	}
	for _, name := range unwell {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		o, err := run([]string{name}, s.troubled[name].after)
		if err != nil {
			return false, err
		}
		more = s.noteTroubled(name, o) || more
	}
	return more, nil
}

// note records a batch of queues that were well.
func (s *sweep) note(o outcome) {
	for name, tally := range o.tallies {
		if tally.waiting == 0 {
			continue
		}
		if s.troubled == nil {
			s.troubled = map[string]*trouble{}
		}
		s.troubled[name] = &trouble{}
		s.noteTroubled(name, outcome{tallies: o.tallies, last: o.last, full: o.full})
	}
}

// noteTroubled records a batch of a troubled queue.
func (s *sweep) noteTroubled(name string, o outcome) (more bool) {
	t := s.troubled[name]
	fared := o.tallies[name]
	switch {
	case fared != nil && fared.waiting > 0 && fared.settled == 0:
		t.until = time.Now().Add(t.next())
	case fared == nil || fared.waiting == 0:
		if t.after == (cursor{}) || !o.full {
			delete(s.troubled, name) // If rows still wait in front, the next batch tells.
			return o.full
		}
	default:
		t.reset()
	}
	t.after = cursor{}
	if o.full {
		t.after = o.last
	}
	return o.full && !time.Now().Before(t.until)
}
