package api

import (
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Spec is what the API says of itself, so that values can be compared with it.
func (a *API) Spec() *huma.OpenAPI {
	doc := a.core.described.OpenAPI()
	for _, schema := range doc.Components.Schemas.Map() {
		schema.PrecomputeMessages()
		for _, property := range schema.Properties {
			if values, ok := property.AdditionalProperties.(*huma.Schema); ok {
				values.PrecomputeMessages()
			}
		}
	}
	for _, response := range doc.Components.Responses {
		for _, media := range response.Content {
			media.Schema.PrecomputeMessages()
		}
	}
	for op := range operations(doc) {
		for _, p := range op.Parameters {
			p.Schema.PrecomputeMessages()
		}
		if op.RequestBody != nil {
			op.RequestBody.Content["application/json"].Schema.PrecomputeMessages()
		}
	}
	return doc
}

// Problems are all that calls may answer, by status.
func (a *API) Problems() map[int]map[string]bool {
	all := map[int]map[string]bool{http.StatusMethodNotAllowed: {"method_not_allowed": true}}
	for op := range operations(a.core.described.OpenAPI()) {
		for status, codes := range problemsOf(op) {
			if all[status] == nil {
				all[status] = map[string]bool{}
			}
			for _, code := range codes {
				all[status][code] = true
			}
		}
	}
	return all
}

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
