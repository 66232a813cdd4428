package linear

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
)

// lie makes one call of a history untrue, and reports whether there is one to take.
type lie struct {
	name string
	tell func(calls []call) ([]call, bool)
}

// answerOf has the first call that was answered so be answered otherwise.
func answerOf(was, is answer, verbs ...verb) func([]call) ([]call, bool) {
	return func(calls []call) ([]call, bool) {
		for i := range calls {
			for _, v := range verbs {
				if c := &calls[i]; c.verb == v && c.answer == was && !c.isLoose {
					c.answer = is
					return calls, true
				}
			}
		}
		return nil, false
	}
}

// lies are what a broken product might tell or do. Some are true by chance, as where two calls met.
var lies = []lie{
	{"a publication lost", func(calls []call) ([]call, bool) {
		var kept []call
		for _, c := range calls {
			if c.verb != claim && c.verb != settle {
				kept = append(kept, c)
			}
		}
		return kept, len(kept) < len(calls)
	}},
	{"a publication for another due time", func(calls []call) ([]call, bool) {
		for i := range calls {
			if calls[i].verb == claim {
				calls[i].due--
				return calls, true
			}
		}
		return nil, false
	}},
	{"a cancelled message published", func(calls []call) ([]call, bool) {
		var last call
		for _, c := range calls {
			if c.verb == claim {
				last = c
			}
		}
		again := call{verb: cancel, answer: done, isSure: true, from: last.from, to: last.from}
		return append(calls, again), last.life > 0
	}},
	{"a cancel that says done, too late", answerOf(tooLate, done, cancel)},
	{"a cancel that does not say that a copy may be out", answerOf(maybe, done, cancel, reschedule)},
	{"a cancel that finds nothing", answerOf(done, notFound, cancel)},
	{"a reschedule that finds nothing", answerOf(done, notFound, reschedule)},
	{"a second message", answerOf(existing, done, schedule)},
	{"a message seen that is gone", answerOf(notFound, waits, get)},
}

// control tells lies about histories that are true: some of each kind must be found. To refute a long history takes long.
func (r *run) control(t *testing.T) {
	t.Helper()
	for _, l := range lies {
		told, caught := 0, 0
		for _, h := range r.histories {
			calls, is := l.tell(append([]call(nil), h.calls...))
			if !is {
				continue
			}
			if result, _ := check(calls, time.Second/5); result == porcupine.Illegal {
				caught++
			}
			if told++; told == 200 {
				break
			}
		}
		t.Logf("control: %s: %d of %d found", l.name, caught, told)
		assert.True(t, told < 50 || caught > 0, l.name)
	}
}
