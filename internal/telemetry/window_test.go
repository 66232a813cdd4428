package telemetry

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// narrowWindow is a window with other numbers at each place.
type narrowWindow struct{}

func (narrowWindow) Limit() (messages, bytes int)    { return 12, 3400 }
func (narrowWindow) InFlight() (messages, bytes int) { return 7, 2100 }

func TestWindows(t *testing.T) {
	t.Parallel()
	m := New("v1")
	m.AddWindow("events", narrowWindow{})
	lines := scrape(t, m)
	for name, want := range map[string]string{
		`delaybridge_window_limit_messages{sink="events"}`: "12",
		`delaybridge_window_limit_bytes{sink="events"}`:    "3400",
		`delaybridge_window_used_messages{sink="events"}`:  "7",
		`delaybridge_window_used_bytes{sink="events"}`:     "2100",
	} {
		assert.Equal(t, want, lines[name], name)
	}
}
