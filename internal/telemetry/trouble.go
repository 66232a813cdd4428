package telemetry

import "time"

const (
	// sayAgain is how often the same cause is told again while others alternate with it.
	sayAgain = time.Minute
	// mostCauses bounds the causes that are remembered.
	mostCauses = 16
)

// Trouble is a fault that may last, as the log tells of it: at once when it
// begins, and again when its cause becomes another one, not at each try. The
// zero value is none. It is not safe for concurrent use.
type Trouble struct {
	cause string
	said  map[string]time.Time // by cause
}

// News notes that the fault is there, and reports whether that is to be said.
func (t *Trouble) News(cause string) bool {
	if t.said != nil && cause == t.cause {
		return false
	}
	if t.said == nil || len(t.said) >= mostCauses {
		t.said = map[string]time.Time{}
	}
	t.cause = cause
	last, known := t.said[cause]
	if now := time.Now(); !known || now.Sub(last) >= sayAgain {
		t.said[cause] = now
		return true
	}
	return false
}

// Over notes that the fault is not there, and reports whether it was before.
func (t *Trouble) Over() bool {
	was := t.said != nil
	*t = Trouble{}
	return was
}
