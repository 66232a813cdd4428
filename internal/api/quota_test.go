package api

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// TestQuota: nobody gets more than a share, the reserve is for operators, and what is
// given back goes to who waits first and may have it.
func TestQuota(t *testing.T) {
	t.Parallel()
	q := newQuota(10, 4, 2)
	a, b, c := payer{address: "a"}, payer{address: "b"}, payer{address: "c"}
	first := q.holding(a, false)
	assert.True(t, first.try(4))
	assert.False(t, first.try(1), "its share is used up")
	second := q.holding(b, false)
	assert.True(t, second.try(4))
	assert.False(t, q.holding(c, false).try(1), "the rest is kept")
	operator := q.holding(a, true)
	assert.True(t, operator.try(2))
	assert.False(t, operator.try(1), "that is used up, too")

	got := make(chan string, 3)
	for i, p := range []payer{a, c, c} { // The first of them waits for its own share.
		h := q.holding(p, false)
		go func() {
			if h.wait(t.Context(), 3) {
				got <- fmt.Sprint(p.address)
			}
		}()
		q.waits(i + 1)
	}
	second.release()
	assert.Equal(t, "c", <-got)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.False(t, q.holding(b, false).wait(ended, 2))
	first.release()
	first.release()
	assert.Equal(t, "a", <-got)
	operator.release()
	assert.Empty(t, got, "a share is one caller's")
	assert.Zero(t, q.reserved)
}

// waits returns when so many wait.
func (q *quota) waits(n int) {
	for {
		q.mu.Lock()
		enough := len(q.waiting) >= n
		q.mu.Unlock()
		if enough {
			return
		}
		runtime.Gosched()
	}
}

// TestQuotaIsGivenBack: whatever is taken and given, in whatever order, no bound is broken,
// and at the end all is there again.
func TestQuotaIsGivenBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := newQuota(20, 8, 5)
		var held []*holding
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "give") {
				held[rapid.IntRange(0, len(held)-1).Draw(t, "which")].release()
				continue
			}
			h := q.holding(payer{address: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "who")}, rapid.Bool().Draw(t, "operator"))
			h.try(int64(rapid.IntRange(1, 9).Draw(t, "n")))
			held = append(held, h)
			if q.used > 15 || q.reserved > 5 || q.shares[h.payer] > 8 {
				t.Fatalf("%d and %d are taken, by %v", q.used, q.reserved, q.shares)
			}
		}
		for _, h := range held {
			h.release()
		}
		if q.used != 0 || q.reserved != 0 || len(q.shares) != 0 {
			t.Fatalf("%d and %d are left", q.used, q.reserved)
		}
	})
}
