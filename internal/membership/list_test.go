package membership

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/sharding"
)

func TestWithout(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []int{1, 4}, without([]int{1, 2, 4}, []int{2, 3}))
	assert.Equal(t, []int{}, without(nil, []int{2}))
}

func TestJoined(t *testing.T) {
	t.Parallel()
	assert.Empty(t, joined[int](nil))
	assert.Equal(t, "a,b", joined([]string{"a", "b"}))
	assert.Len(t, strings.Split(joined(make([]int, 1000)), ","), mostListed)
	assert.True(t, strings.HasSuffix(joined(make([]int, 1000)), "0 and 968 more"))
}

func TestSources(t *testing.T) {
	t.Parallel()
	var s sources
	s.note("q", []int{0, 1}, []string{"a"}, 2)
	assert.Empty(t, s.take([]int{0, 1}), "nobody had them before")
	s.note("q", nil, []string{"a", "b"}, 4)
	s.note("q", []int{0, 1, 2, 3}, []string{"a"}, 4)
	owner := sharding.Owner("q", 3, []string{"a", "b"})
	assert.Equal(t, []string{owner}, s.take([]int{3}))
	assert.Empty(t, s.take([]int{3}), "taken")
	assert.Equal(t, []string{"a", "b"}, s.take([]int{0, 1, 2}))
	s.note("q", []int{4}, []string{"a"}, 5)
	assert.Empty(t, s.take([]int{4}), "it is new")
}
