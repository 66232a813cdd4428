package api

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"

	"github.com/delaybridge/delaybridge/internal/api/access"
)

const (
	// profilesBase is where the profiles are; package pprof knows no other place.
	profilesBase = "/debug/pprof/"
	// longestProfile is how long a profile may be taken, in seconds.
	longestProfile = 60
)

// Profiles serves what runtime/pprof has, to operators, one profile at a time. The
// command line is not among it.
func (a *API) Profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+profilesBase, pprof.Index)
	mux.HandleFunc("GET "+profilesBase+"cmdline", http.NotFound)
	mux.HandleFunc("GET "+profilesBase+"profile", pprof.Profile)
	mux.HandleFunc("GET "+profilesBase+"symbol", pprof.Symbol)
	mux.HandleFunc("GET "+profilesBase+"trace", pprof.Trace)
	busy := make(chan struct{}, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		identify(w, r)
		if caller, err := a.core.mayProfile(r); err != nil {
			a.core.router.refuse(w, r, caller, "profile", problem(err))
			return
		}
		select {
		case busy <- struct{}{}:
			defer func() { <-busy }()
			mux.ServeHTTP(w, r)
		default:
			writeProblem(w, newProblem(http.StatusTooManyRequests, "rate_limited", "another profile is being taken"))
		}
	})
}

// mayProfile refuses who is no operator of everything, and what takes too long.
func (c *core) mayProfile(r *http.Request) (*access.Caller, error) {
	if err := c.config.Guard.CheckSite(r); err != nil {
		return nil, err
	}
	caller, err := c.config.Guard.Admit(r, operators, false)
	if err != nil {
		return caller, err
	}
	if caller.IsLimited() {
		return caller, forbidden(caller.Name + " may use certain queues or topics only, and a profile is of all of them")
	}
	if seconds := r.URL.Query().Get("seconds"); seconds != "" {
		if n, err := strconv.ParseFloat(seconds, 64); err != nil || !(n > 0 && n <= longestProfile) { // NaN is refused, too.
			return caller, invalid("seconds", fmt.Sprintf("seconds must be more than 0, and %d at the most", longestProfile))
		}
	}
	c.config.Logger.InfoContext(r.Context(), "profile", "event", "audit", "request", r.Header.Get(requestID), "who", caller.Name, "action", "profile",
		"what", strings.TrimPrefix(r.URL.Path, profilesBase))
	return caller, nil
}
