package access

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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
	// tokens is nil if there is no file of them.
	tokens   *File
	readOnly bool
	// local and remote are who calls without a credential.
	local, remote *Caller
	sites         *http.CrossOriginProtection
	logger        *slog.Logger
	observer      Observer

	known    atomic.Pointer[known]
	limiters limiters
	changing sync.Mutex
	changed  chan struct{} // "settings have changed", of capacity 1
}

// NewGuard returns a guard. Where there are issuers it knows their callers only while Run runs. The error is
// about the settings.
func NewGuard(o Options) (*Guard, error) {
	g := &Guard{
		tokens: o.Tokens, readOnly: o.ReadOnly, sites: http.NewCrossOriginProtection(), logger: o.Logger, observer: o.Observer, changed: make(chan struct{}, 1),
		local:  &Caller{Name: "local", Role: Operator, limiter: rate.NewLimiter(defaultRate, defaultRate), isAnyone: true},
		remote: &Caller{Name: "remote", Role: Viewer, limiter: rate.NewLimiter(defaultRate, defaultRate), isAnyone: true},
	}
	if g.logger == nil {
		g.logger = slog.New(slog.DiscardHandler)
	}
	if g.observer == nil {
		g.observer = unobserved{}
	}
	return g, g.Change(o.Settings)
}

// IsReadOnly reports whether all changes are refused.
func (g *Guard) IsReadOnly() bool { return g.readOnly }

// NeedsCredential reports whether callers are known by credentials: then everybody needs one.
func (g *Guard) NeedsCredential() bool { return g.needsCredential(g.known.Load()) }

func (g *Guard) needsCredential(k *known) bool { return g.tokens != nil || k != nil && !k.isEmpty() }

// Admit returns who calls, and an error unless that is one of those who may; a call that
// changes something is a change. The error is a [*Refusal]; the caller may be known all the same.
func (g *Guard) Admit(r *http.Request, allowed []Role, isChange bool) (*Caller, error) {
	if err := g.sites.Check(r); err != nil {
		return nil, forbidden("a page of another site may change nothing: " + err.Error())
	}
	caller, err := g.identify(r)
	switch {
	case err != nil:
		return caller, err
	case !slices.Contains(allowed, caller.Role):
		return caller, g.wrongRole(caller, isChange)
	case isChange && g.readOnly:
		return caller, &Refusal{http.StatusForbidden, "read_only", "admin.read_only is set: nothing may be changed here"}
	case !caller.limiter.Allow():
		return caller, &Refusal{http.StatusTooManyRequests, "rate_limited", "more calls a second than " + caller.Name + " may make"}
	}
	return caller, nil
}

// Holds reports whether the caller of a request that goes on, such as a stream, may still make it with the same rights.
func (g *Guard) Holds(r *http.Request, caller *Caller) bool {
	now, err := g.identify(r)
	return err == nil && now.hasRightsOf(caller)
}

// CheckSite refuses a page of another site also what changes nothing, where it costs much.
func (g *Guard) CheckSite(r *http.Request) error {
	asked := r.WithContext(r.Context())
	asked.Method = http.MethodPost // What is safe is let in from everywhere.
	if err := g.sites.Check(asked); err != nil {
		return forbidden("a page of another site may not do this: " + err.Error())
	}
	return nil
}

func (g *Guard) wrongRole(caller *Caller, isChange bool) *Refusal {
	detail := "the role " + string(caller.Role) + " may not do this"
	if isChange && caller == g.remote {
		detail = "without admin.auth only who calls from the host itself, and by no proxy, may change anything"
	}
	return forbidden(detail)
}

// identify returns who calls. Who sends the header Authorization is known by that alone, even where a certificate
// says more: a gateway that hands on the token of a user must not lend it its own rights.
func (g *Guard) identify(r *http.Request) (*Caller, error) {
	known := g.known.Load()
	if !g.needsCredential(known) {
		return g.byHost(r)
	}
	leaf := certificateOf(r.TLS)
	switch header := r.Header.Get("Authorization"); {
	case header != "":
		return g.byHeader(r.Context(), header, known)
	case leaf != nil && len(known.certificates) > 0:
		return known.byCertificate(leaf, time.Now(), &g.limiters)
	case len(known.certificates) > 0:
		return nil, unauthorized("needs the header Authorization: Bearer and a token, or a client certificate")
	default:
		return nil, unauthorized("needs the header Authorization: Bearer and a token")
	}
}

func (g *Guard) byHeader(ctx context.Context, header string, known *known) (*Caller, error) {
	scheme, token, _ := strings.Cut(header, " ")
	if token = strings.TrimSpace(token); token == "" || !strings.EqualFold(scheme, "bearer") {
		return nil, unauthorized("needs the header Authorization: Bearer and a token")
	}
	if g.tokens != nil {
		if caller := g.tokens.Get().caller(token); caller != nil {
			return caller, nil
		}
	}
	if len(known.issuers) > 0 && isJWT(token) {
		return known.byJWT(ctx, token, &g.limiters)
	}
	return nil, unauthorized("the token is not known")
}

// byHost is the caller where nobody needs a credential.
func (g *Guard) byHost(r *http.Request) (*Caller, error) {
	if !isLoopback(r.RemoteAddr) {
		return g.remote, nil
	}
	// A page whose name was made to point here may read and write what this host may.
	if !isLoopback(r.Host) {
		return nil, forbidden("the header Host must name this host itself: localhost, or an address of it")
	}
	if isForwarded(r.Header) {
		return g.remote, nil // A proxy here speaks for others.
	}
	return g.local, nil
}

func unauthorized(detail string) *Refusal {
	return &Refusal{http.StatusUnauthorized, "unauthorized", detail}
}

func forbidden(detail string) *Refusal { return &Refusal{http.StatusForbidden, "forbidden", detail} }

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
