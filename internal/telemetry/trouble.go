package telemetry

import "time"

const (
	// sayAgain is the interval at which the same cause is logged again while others alternate with it.
	sayAgain = time.Minute
	// mostCauses bounds the causes that are remembered.
	mostCauses = 16
)

// Trouble decides when to log a lasting fault: at once when it begins, and
// again when its cause changes, but not at each try. The zero value means no
// fault. It is not safe for concurrent use.
type Trouble struct {
	cause string
	said  map[string]time.Time // by cause
}

// News records the fault, and reports whether to log it.
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

// Over records that the fault is over, and reports whether it existed before.
func (t *Trouble) Over() bool {
	was := t.said != nil
	*t = Trouble{}
	return was
}
