package preflight

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/api/access/jwks"
	"github.com/delaybridge/delaybridge/internal/check"
)

// issuer looks for the keys of an issuer, as a bridge does.
func issuer(ctx context.Context, name string, given access.Issuer) []check.Finding {
	if _, err := jwks.Fetch(ctx, given.Keys()); err != nil {
		return []check.Finding{{
			Level: check.Error, Code: "issuer_unread", What: err.Error(),
			Why:    "without its keys no token of the issuer can be checked: its callers get 503",
			Remedy: "let this machine reach the issuer, or correct admin.auth.issuers." + name + ": url as the tokens have it in iss, jwks_url, ca_file, token_file",
		}}
	}
	return nil
}
