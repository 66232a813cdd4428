package trial

import (
	"errors"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

// Calls records how long producers' calls took, by verb, and their answers.
// It is safe for concurrent use. A nil one records nothing.
type Calls struct {
	// Counts are the answers by verb and text.
	Counts map[string]int

	mu      sync.Mutex
	longest map[string]time.Duration
}

// Time makes a call, records it, and returns its error.
func (c *Calls) Time(verb string, call func() error) error {
	if c == nil {
		return call()
	}
	begin := time.Now()
	err := call()
	c.Took(verb, time.Since(begin), err)
	return err
}

// Took records a call.
func (c *Calls) Took(verb string, took time.Duration, err error) {
	text := "done"
	if err != nil {
		text = "failed"
	}
	for _, known := range []error{
		delay.ErrTooLate, delay.ErrNotFound, delay.ErrMaybePublished, delay.ErrUnavailable, delay.ErrDuplicate,
		delay.ErrNotDurable, delay.ErrUnknown,
	} {
		if errors.Is(err, known) {
			text = known.Error()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.longest == nil {
		c.longest = map[string]time.Duration{}
	}
	if c.Counts == nil {
		c.Counts = map[string]int{}
	}
	c.longest[verb] = max(c.longest[verb], took)
	c.Counts[verb+": "+text]++
}

// Take returns the longest call of each verb since the last Take.
func (c *Calls) Take() map[string]time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := c.longest
	c.longest = nil
	return longest
}
