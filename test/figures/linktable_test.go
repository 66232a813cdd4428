package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// arrivals is a course with so many more arrivals at each quarter of a second.
func arrivals(each ...int) (c course) {
	total := 0
	for i, n := range each {
		total += n
		c = append(c, sample{at: time.Duration(i) * sampleEvery, arrived: total})
	}
	return c
}

func repeat(n, times int) (list []int) {
	for range times {
		list = append(list, n)
	}
	return list
}

func TestBackAfter(t *testing.T) {
	t.Parallel()
	// 25 a sample are 100 a second; a pause of 2 s, then a second of a tenth of it.
	c := arrivals(append(append(append(repeat(25, 8), repeat(0, 8)...), 3, 3, 3, 3), repeat(25, 20)...)...)
	after, ok := c.backAfter(4*time.Second, 95)
	assert.True(t, ok)
	assert.Equal(t, 750*time.Millisecond, after)
	_, ok = c.backAfter(4*time.Second, 101)
	assert.False(t, ok, "it was never that fast")
	_, ok = c[:22].backAfter(4*time.Second, 95)
	assert.False(t, ok, "it did not last")
}

func TestEachSecond(t *testing.T) {
	t.Parallel()
	some := arrivals(repeat(1, 9)...).eachSecond()
	assert.Len(t, some, 3)
	assert.Equal(t, 9, some[2].arrived)
}
