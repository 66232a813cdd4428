package api

import "github.com/danielgtaylor/huma/v2"

// Spec is what the API says of itself.
func (a *API) Spec() *huma.OpenAPI { return a.core.huma.OpenAPI() }
