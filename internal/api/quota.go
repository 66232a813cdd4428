package api

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/delaybridge/delaybridge/internal/api/access"
)

// mostWaiting is how many callers may wait for a quota; one more is refused.
const mostWaiting = 1024

// quota is how much there may be of something at once: calls, streams, or bytes of
// bodies. Nobody has more than a share of it, so that one caller stops no other; and a
// part is kept for operators, who are wanted most where all else is taken.
type quota struct {
	most, share, reserve int64

	mu sync.Mutex
	// used is what is taken but for the reserve, by whom it is in shares.
	used, reserved int64
	shares         map[payer]int64
	waiting        []*waiter // the first comes first
}

// payer is whose share something is taken from: that of a caller, whatever it is known by, or else that of
// an address.
type payer struct{ identity, address string }

func payerOf(caller *access.Caller, r *http.Request) payer {
	if !caller.IsAnyone() {
		return payer{identity: caller.Identity()}
	}
	return payer{caller.Name, addressOf(r)}
}

// addressOf is where a call comes from, without the port.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// holding is what a call has taken of a quota.
type holding struct {
	quota      *quota
	payer      payer
	mayReserve bool

	used, reserved int64
}

type waiter struct {
	*holding

	n     int64
	ready chan struct{} // closed when it has what it waits for
}

func newQuota(most, share, reserve int64) *quota {
	return &quota{most: most, share: share, reserve: reserve, shares: map[payer]int64{}}
}

func (q *quota) holding(p payer, mayReserve bool) *holding {
	return &holding{quota: q, payer: p, mayReserve: mayReserve}
}

// try takes n more, if there is room for it.
func (h *holding) try(n int64) bool {
	h.quota.mu.Lock()
	defer h.quota.mu.Unlock()
	return h.take(n)
}

// wait takes n more when there is room for it, and reports whether there was before the context
// ended. Callers are served in order of arrival, except those whose own share is used up.
func (h *holding) wait(ctx context.Context, n int64) bool {
	q := h.quota
	q.mu.Lock()
	if h.take(n) {
		q.mu.Unlock()
		return true
	}
	if len(q.waiting) >= mostWaiting {
		q.mu.Unlock()
		return false
	}
	w := &waiter{h, n, make(chan struct{})}
	q.waiting = append(q.waiting, w)
	q.mu.Unlock()
	select {
	case <-w.ready:
		return true
	case <-ctx.Done():
		return !q.leave(w)
	}
}

// leave takes one from those who wait, and reports whether it did still.
func (q *quota) leave(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.Index(q.waiting, w)
	if at < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, at, at+1)
	return true
}

// take is try for who has the lock.
func (h *holding) take(n int64) bool {
	q := h.quota
	switch {
	case q.used+n <= q.most-q.reserve && q.shares[h.payer]+n <= q.share:
		q.used += n
		q.shares[h.payer] += n
		h.used += n
	case h.mayReserve && q.reserved+n <= q.reserve:
		q.reserved += n
		h.reserved += n
	default:
		return false
	}
	return true
}

// release gives all of it back. It may be called twice.
func (h *holding) release() {
	q := h.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used, q.reserved = q.used-h.used, q.reserved-h.reserved
	if q.shares[h.payer] -= h.used; q.shares[h.payer] == 0 {
		delete(q.shares, h.payer)
	}
	h.used, h.reserved = 0, 0
	q.waiting = slices.DeleteFunc(q.waiting, func(w *waiter) bool {
		taken := w.take(w.n)
		if taken {
			close(w.ready)
		}
		return taken
	})
}
