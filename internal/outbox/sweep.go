package outbox

import "time"

// sweep is where a lane is in the table: it goes through it batch by batch, and
// leaves queues alone for a while of which no row at all could be stored. It
// belongs to one goroutine.
type sweep struct {
	after  cursor
	queues map[string]*rest
}

// rest is a queue that waits.
type rest struct {
	backoff
	until time.Time
}

// awake are the queues that do not wait.
func (s *sweep) awake(names []string) []string {
	if len(s.queues) == 0 {
		return names
	}
	var list []string
	for _, name := range names {
		if q := s.queues[name]; q == nil || !time.Now().Before(q.until) {
			list = append(list, name)
		}
	}
	return list
}

// tally is how the rows of a queue fared in a batch.
type tally struct {
	settled, waiting int
	err              error // one of those why rows wait
}

// note records how a batch went and where it ended; more says that another one
// may be had at once.
func (s *sweep) note(tallies map[string]*tally, last cursor, full bool) (more bool) {
	waiting := false
	for name, t := range tallies {
		waiting = waiting || t.waiting > 0
		switch {
		case t.waiting > 0 && t.settled == 0:
			if s.queues == nil {
				s.queues = map[string]*rest{}
			}
			if s.queues[name] == nil {
				s.queues[name] = &rest{}
			}
			s.queues[name].until = time.Now().Add(s.queues[name].next())
		case t.settled > 0:
			delete(s.queues, name)
		}
	}
	switch {
	case !full:
		s.after = cursor{}
	case waiting || s.after != (cursor{}):
		s.after = last
	}
	return full
}
