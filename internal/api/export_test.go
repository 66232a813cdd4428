package api

import (
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Spec is what the API says of itself.
func (a *API) Spec() *huma.OpenAPI { return a.core.huma.OpenAPI() }

// SetBodyTimeout sets how long a body may take to arrive.
func (a *API) SetBodyTimeout(timeout time.Duration) { a.core.router.bodyTimeout = timeout }

// SetBytes sets how many bytes of bodies may be in flight, and what the share of a caller is.
func (a *API) SetBytes(most, share int64) { a.core.router.bytes = newQuota(most, share, 0) }

// Bytes are those in flight: of all bodies, of large ones, and how many of these wait.
func (a *API) Bytes() (small, large int64, waiting int) {
	rt := a.core.router
	rt.bytes.mu.Lock()
	small = rt.bytes.used
	rt.bytes.mu.Unlock()
	rt.large.mu.Lock()
	defer rt.large.mu.Unlock()
	return small, rt.large.used, len(rt.large.waiting)
}
