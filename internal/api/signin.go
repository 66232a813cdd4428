package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/delaybridge/delaybridge/internal/api/access"
)

// mostGrant is how many bytes the body of a sign-in may have: refresh tokens of some issuers have some thousand.
const mostGrant = 16 << 10

// signIns has the calls by which people sign in to the console, see [access.Guard.SignIn]. They are the console's
// own: nobody needs a credential for them, and they are not in the document.
type signIns struct{ *core }

func (s *signIns) register() {
	s.router.HandleFunc("GET "+base+"/sign-in", s.list)
	s.router.HandleFunc("POST "+base+"/sign-in/{issuer}", s.signIn)
}

func (s *signIns) list(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{"issuers": s.config.Guard.SignIns()})
}

func (s *signIns) signIn(w http.ResponseWriter, r *http.Request) {
	err := s.config.Guard.CheckSite(r)
	var grant access.Grant
	if err == nil {
		grant, err = readGrant(w, r)
	}
	var signed *access.Signed
	if err == nil {
		signed, err = s.config.Guard.SignIn(r.Context(), r.PathValue("issuer"), grant)
	}
	if err != nil {
		s.router.refuse(w, r, nil, "signIn", problem(err))
		return
	}
	writeJSON(w, signed)
}

func readGrant(w http.ResponseWriter, r *http.Request) (grant access.Grant, err error) {
	if err := checkType(r); err != nil {
		return grant, err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // Not every writer has one; a connection's does.
	from := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostGrant))
	from.DisallowUnknownFields()
	if err := from.Decode(&grant); err != nil {
		if _, isLarge := errors.AsType[*http.MaxBytesError](err); isLarge {
			return grant, invalid("body", "the body has more than 16384 bytes")
		}
		return grant, invalid("body", "the body must be a JSON object with code, code_verifier and redirect_uri, or with refresh_token")
	}
	if isCode := grant.Code != "" && grant.Verifier != "" && grant.RedirectURI != ""; isCode == (grant.Refresh != "") {
		return grant, invalid("body", "give code, code_verifier and redirect_uri, or refresh_token")
	}
	return grant, nil
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // An error means that the caller has gone.
}
