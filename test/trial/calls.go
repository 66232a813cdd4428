package trial

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Calls notes how long producers' calls took, by verb, and what was answered.
// It is safe for concurrent use. A nil one notes nothing.
type Calls struct {
	Answers

	mu      sync.Mutex
	longest map[string]time.Duration
}

// Time makes a call, notes it, and returns its error.
func (c *Calls) Time(verb string, call func() error) error {
	if c == nil {
		return call()
	}
	begin := time.Now()
	err := call()
	c.Took(verb, time.Since(begin), err)
	return err
}

// Took notes a call that was made.
func (c *Calls) Took(verb string, took time.Duration, err error) {
	c.note(verb, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.longest == nil {
		c.longest = map[string]time.Duration{}
	}
	c.longest[verb] = max(c.longest[verb], took)
}

// Take is the longest call of each verb since the last time.
func (c *Calls) Take() map[string]time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := c.longest
	c.longest = nil
	return longest
}

// Worst is the longest call since the last time, and its verb.
func (c *Calls) Worst() (verb string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for v, t := range c.longest {
		if t > took {
			verb, took = v, t
		}
	}
	c.longest = nil
	return verb, took
}

// Longest is the longest call of each verb since the last time, in a line.
func (c *Calls) Longest() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	for _, verb := range slices.Sorted(maps.Keys(c.longest)) {
		parts = append(parts, fmt.Sprintf("%s %s", verb, c.longest[verb].Round(100*time.Microsecond)))
	}
	c.longest = nil
	return strings.Join(parts, "  ")
}
