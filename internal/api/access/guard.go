package access

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/time/rate"
)

// Refusal is why a call is not served.
type Refusal struct {
	Status       int
	Code, Detail string
}

func (r *Refusal) Error() string { return r.Detail }

// Guard looks at each call before it is served. It is safe for concurrent use.
type Guard struct {
	// file is nil if there are no tokens.
	file     *File
	readOnly bool
	// local and remote are who calls without tokens.
	local, remote *Caller
	sites         *http.CrossOriginProtection
}

// NewGuard returns a guard that goes by the tokens of a file; nil means that there
// are none. With readOnly all changes are refused.
func NewGuard(file *File, readOnly bool) *Guard {
	return &Guard{
		file: file, readOnly: readOnly, sites: http.NewCrossOriginProtection(),
		local:  &Caller{Name: "local", Role: Operator, limiter: rate.NewLimiter(defaultRate, defaultRate), isAnyone: true},
		remote: &Caller{Name: "remote", Role: Viewer, limiter: rate.NewLimiter(defaultRate, defaultRate), isAnyone: true},
	}
}

// IsReadOnly reports whether all changes are refused.
func (g *Guard) IsReadOnly() bool { return g.readOnly }

// HasTokens reports whether callers are known by tokens.
func (g *Guard) HasTokens() bool { return g.file != nil }

// Admit returns who calls, and an error unless that is one of those who may; a call that
// changes something is a change. The error is a [*Refusal]; the caller may be known all the same.
func (g *Guard) Admit(r *http.Request, allowed []Role, isChange bool) (*Caller, error) {
	if err := g.sites.Check(r); err != nil {
		return nil, &Refusal{http.StatusForbidden, "forbidden", "a page of another site may change nothing: " + err.Error()}
	}
	caller, err := g.identify(r)
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(allowed, caller.Role):
		return caller, g.wrongRole(caller, isChange)
	case isChange && g.readOnly:
		return caller, &Refusal{http.StatusForbidden, "read_only", "admin.read_only is set: nothing may be changed here"}
	case !caller.limiter.Allow():
		return caller, &Refusal{http.StatusTooManyRequests, "rate_limited", "more calls a second than " + caller.Name + " may make"}
	}
	return caller, nil
}

// CheckSite refuses a page of another site also what changes nothing, where it costs much.
func (g *Guard) CheckSite(r *http.Request) error {
	asked := r.WithContext(r.Context())
	asked.Method = http.MethodPost // What is safe is let in from everywhere.
	if err := g.sites.Check(asked); err != nil {
		return &Refusal{http.StatusForbidden, "forbidden", "a page of another site may not do this: " + err.Error()}
	}
	return nil
}

func (g *Guard) wrongRole(caller *Caller, isChange bool) *Refusal {
	detail := "the role " + string(caller.Role) + " may not do this"
	if isChange && caller == g.remote {
		detail = "without admin.auth.tokens_file only who calls from the host itself, and by no proxy, may change anything"
	}
	return &Refusal{http.StatusForbidden, "forbidden", detail}
}

func (g *Guard) identify(r *http.Request) (*Caller, error) {
	if g.file != nil {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if token == "" || !strings.EqualFold(scheme, "bearer") {
			return nil, &Refusal{http.StatusUnauthorized, "unauthorized", "needs the header Authorization: Bearer and a token"}
		}
		if caller := g.file.Get().caller(strings.TrimSpace(token)); caller != nil {
			return caller, nil
		}
		return nil, &Refusal{http.StatusUnauthorized, "unauthorized", "the token is not known"}
	}
	if !isLoopback(r.RemoteAddr) {
		return g.remote, nil
	}
	// A page whose name was made to point here may read and write what this host may.
	if !isLoopback(r.Host) {
		return nil, &Refusal{http.StatusForbidden, "forbidden", "the header Host must name this host itself: localhost, or an address of it"}
	}
	if isForwarded(r.Header) {
		return g.remote, nil // A proxy here speaks for others.
	}
	return g.local, nil
}

// isLoopback reports whether an address, or a Host with or without a port, is the
// host itself.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
