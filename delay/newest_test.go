package delay

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// TestNewest: a debounced call whose last run certainly did not happen still says that the message was in flight.
func TestNewest(t *testing.T) {
	t.Parallel()
	inFlight := store.Answer{Code: store.InFlight}
	assert.Equal(t, inFlight, newest(inFlight, store.Answer{Err: store.ErrUnavailable}))
	for _, next := range []store.Answer{{Code: store.Created}, {Code: store.InFlight}, {Err: store.ErrUnknown}, {Err: store.ErrNoLayout}} {
		assert.Equal(t, next, newest(inFlight, next))
	}
}
