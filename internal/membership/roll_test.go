package membership

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// rollCall is a roll whose answers a test makes up, on two clocks.
type rollCall struct {
	roll

	now   time.Time
	redis int64
}

func newRollCall() *rollCall {
	return &rollCall{roll: roll{self: "a/1", deadAfter: 3 * time.Second}, now: time.Now(), redis: 1_000_000}
}

// hear lets so much time pass on both clocks, and answers with how long ago each
// instance sent its heartbeat; ours is sent now.
func (c *rollCall) hear(after time.Duration, ages map[string]time.Duration) []string {
	c.now = c.now.Add(after)
	c.redis += after.Milliseconds()
	answer := []store.Heartbeat{{Instance: "a/1", At: c.redis}}
	for instance, age := range ages {
		answer = append(answer, store.Heartbeat{Instance: instance, At: c.redis - age.Milliseconds()})
	}
	c.roll.hear(c.now, answer)
	return c.live
}

const second = time.Second

func TestWhoLives(t *testing.T) {
	t.Parallel()
	c := newRollCall()
	assert.Equal(t, []string{"a"}, c.hear(0, nil), "the first is alone at once")
	assert.Equal(t, []string{"a", "b"}, c.hear(second, map[string]time.Duration{"b/1": 0}), "who comes is let in at once")
	for range 10 {
		assert.Equal(t, []string{"a", "b"}, c.hear(second, map[string]time.Duration{"b/1": second / 2}))
	}
	silent := second / 2
	for range 2 {
		silent += second
		assert.Equal(t, []string{"a", "b"}, c.hear(second, map[string]time.Duration{"b/1": silent}))
	}
	assert.Equal(t, []string{"a"}, c.hear(second, map[string]time.Duration{"b/1": silent + second}), "3.5 s after its heartbeat")
	assert.Equal(t, []string{"a", "b"}, c.hear(second, map[string]time.Duration{"b/1": 0}), "it comes back")
	assert.Equal(t, []string{"a"}, c.hear(second, nil), "it has left")
}

func TestLeftoverIsDeadAtOnce(t *testing.T) {
	t.Parallel()
	c := newRollCall()
	assert.Equal(t, []string{"a", "live"}, c.hear(0, map[string]time.Duration{"dead/1": 4 * second, "live/1": second}))
}

func TestNamesCountOnce(t *testing.T) {
	t.Parallel()
	c := newRollCall()
	assert.Equal(t, []string{"a", "b"}, c.hear(0, map[string]time.Duration{"a/0": second, "b/1": second, "b/2": 0}))
}

func TestRedisClockThatSteps(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]int64{"back": -3600_000, "ahead": 3600_000} {
		c := newRollCall()
		c.hear(0, map[string]time.Duration{"b/1": 0, "dies/1": 0})
		before := c.redis
		c.redis += step
		// Whose heartbeat is from before the step seems to be of the future, or an hour old.
		old := time.Duration(c.redis+1000-before) * time.Millisecond
		assert.Equal(t, []string{"a", "b", "dies"}, c.hear(second, map[string]time.Duration{"b/1": old, "dies/1": old}), name)
		for i := range 10 {
			old += second
			live := c.hear(second, map[string]time.Duration{"b/1": 0, "dies/1": old})
			if i >= 3 {
				assert.Equal(t, []string{"a", "b"}, live, "%s: %d s after", name, i)
			}
		}
	}
}

func TestSilenceOfRedis(t *testing.T) {
	t.Parallel()
	c := newRollCall()
	c.hear(0, map[string]time.Duration{"b/1": 0, "c/1": 0})
	all := []string{"a", "b", "c"}
	assert.Equal(t, all, c.hear(2*time.Minute, nil), "all were silent, and Redis has forgotten them: nobody is taken for gone")
	assert.Equal(t, all, c.hear(second, map[string]time.Duration{"b/1": 0}))
	assert.Equal(t, []string{"a", "b"}, c.hear(second, map[string]time.Duration{"b/1": 0}), "that one has left")

	c.hear(second, map[string]time.Duration{"b/1": 0, "c/1": 0})
	c.hear(second, map[string]time.Duration{"b/1": 0, "c/1": second})
	old := 20 * second
	assert.Equal(t, all, c.hear(20*second, map[string]time.Duration{"b/1": old, "c/1": old + second}), "time without answers counts for nobody")
	for i := range 2 {
		assert.Equal(t, all, c.hear(second, map[string]time.Duration{"b/1": 0, "c/1": old + time.Duration(i+2)*second}))
	}
	assert.Equal(t, []string{"a", "b"}, c.hear(second, map[string]time.Duration{"b/1": 0, "c/1": old + 4*second}))
}

// TestNamesakes has an instance "a/m" hear of others.
func TestNamesakes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	type answer map[string]int64
	for name, c := range map[string]struct {
		unheard bool
		answers []answer
		every   time.Duration
		keeps   string // at the last answer
	}{
		"alone":             {answers: []answer{{}, {}, {}}},
		"leftover":          {answers: []answer{{"a/1": 5}, {"a/1": 5}, {"a/1": 5}, {"a/1": 5}}},
		"late heartbeat":    {answers: []answer{{"a/1": 5}, {"a/1": 6}, {"a/1": 6}, {"a/1": 6}}},
		"lives":             {answers: []answer{{"a/1": 5}, {"a/1": 6}, {"a/1": 7}}, keeps: "a/1"},
		"lives, clock back": {answers: []answer{{"a/1": 5}, {"a/1": 1}, {"a/1": 2}}, keeps: "a/1"},
		"another name":      {answers: []answer{{"b/1": 5}, {"b/1": 6}, {"b/1": 7}}},
		"comes later":       {answers: []answer{{}, {"a/1": 5}, {"a/1": 6}, {"a/1": 7}}},
		"left and returned": {answers: []answer{{"a/1": 5}, {"a/1": 6}, {}, {"a/1": 7}, {"a/1": 8}}},
		"who was first is unknown": {
			unheard: true, answers: []answer{{"a/1": 5}, {"a/1": 6}, {"a/1": 7}},
		},
		"later, does not end, smaller": {
			every: 20 * second, answers: []answer{{}, {"a/1": 5}, {"a/1": 6}, {"a/1": 7}}, keeps: "a/1",
		},
		"later, does not end, greater": {
			every: 20 * second, answers: []answer{{}, {"a/z": 5}, {"a/z": 6}, {"a/z": 7}},
		},
	} {
		n := namesakes{self: "a/m"}
		if c.unheard {
			n.unheard()
		}
		keeps, at := "", now
		for _, a := range c.answers {
			assert.Empty(t, keeps, "%s: too early", name)
			beats := []store.Heartbeat{{Instance: "a/m", At: at.UnixMilli()}}
			for instance, ms := range a {
				beats = append(beats, store.Heartbeat{Instance: instance, At: ms})
			}
			keeps = n.hear(at, beats)
			at = at.Add(max(second, c.every))
		}
		assert.Equal(t, c.keeps, keeps, name)
	}
}
