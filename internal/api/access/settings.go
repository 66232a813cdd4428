package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/delaybridge/delaybridge/internal/api/access/jwks"
)

// Settings say by what callers are known, besides the file of tokens.
type Settings struct {
	// Issuers have the names that stand before those of their callers.
	Issuers map[string]Issuer
	// Certificates are the callers with a client certificate, a line each as in [Issuer.Callers].
	Certificates []string
}

// Problem is what is wrong with a key of the settings: issuers.NAME.KEY, or certificates.
type Problem struct {
	Key string
	Err error
}

func (p Problem) Error() string { return "admin.auth." + p.Key + ": " + p.Err.Error() }

// Check returns all that is wrong with the settings. It does no I/O.
func (s Settings) Check() []Problem {
	_, problems := parseSettings(s)
	return problems
}

// known are settings in force.
type known struct {
	issuers      map[string]*issuer // by URL
	certificates lines
}

func (k *known) isEmpty() bool { return len(k.issuers) == 0 && len(k.certificates) == 0 }

// named is the issuer of that name, or nil.
func (k *known) named(name string) *issuer {
	for _, i := range k.issuers {
		if i.name == name {
			return i
		}
	}
	return nil
}

func parseSettings(s Settings) (*known, []Problem) {
	k := &known{issuers: map[string]*issuer{}}
	var problems []Problem
	if len(s.Issuers) > mostIssuers {
		problems = append(problems, Problem{"issuers", fmt.Errorf("has %d issuers, allowed are %d", len(s.Issuers), mostIssuers)})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Issuers)) {
		i, wrong := parseIssuer(name, s.Issuers[name])
		for _, p := range wrong {
			problems = append(problems, Problem{"issuers." + name + "." + p.Key, p.Err})
		}
		if name == certificateSource {
			problems = append(problems, Problem{"issuers." + name, errors.New("callers with certificates have that name: take another one")})
		}
		if other := k.issuers[i.URL]; other != nil {
			problems = append(problems, Problem{"issuers." + name + ".url", fmt.Errorf("%q is the url of %s, too", i.URL, other.name)})
		}
		k.issuers[i.URL] = i
	}
	var err error
	if k.certificates, err = parseLines(s.Certificates); err != nil {
		problems = append(problems, Problem{"certificates", err})
	}
	return k, problems
}

// Change puts settings in force for each call from now on, or returns what is wrong with them. An issuer whose
// keys are where they were keeps those that it has.
func (g *Guard) Change(s Settings) error {
	next, problems := parseSettings(s)
	if len(problems) > 0 {
		errs := make([]error, len(problems))
		for i, p := range problems {
			errs[i] = p
		}
		return errors.Join(errs...)
	}
	g.changing.Lock()
	defer g.changing.Unlock()
	before := g.known.Load()
	if g.needsCredential(before) && !g.needsCredential(next) {
		return errors.New("admin.auth: no kind of credential would be left, so nobody would need one: that needs a restart")
	}
	for url, i := range next.issuers {
		if before != nil {
			if was := before.issuers[url]; was != nil && was.name == i.name && was.Keys() == i.Keys() {
				i.keys = was.keys
				continue
			}
		}
		i.keys = jwks.New(i.Keys(), g.logger.With("issuer", i.name), func(err error) { g.observer.IssuerFetched(i.name, err) })
	}
	g.known.Store(next)
	select {
	case g.changed <- struct{}{}:
	default:
	}
	return nil
}

// Run fetches the keys of the issuers in force until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	under := map[*jwks.Source]*fetching{}
	for ctx.Err() == nil {
		inForce := map[*jwks.Source]*issuer{}
		for _, i := range g.known.Load().issuers {
			inForce[i.keys] = i
		}
		for keys, f := range under {
			if inForce[keys] == nil {
				f.stop()
				g.observer.IssuerGone(f.issuer)
				delete(under, keys)
			}
		}
		for keys, i := range inForce {
			if under[keys] == nil {
				under[keys] = startFetching(ctx, i)
			}
		}
		select {
		case <-ctx.Done():
		case <-g.changed:
		}
	}
	for _, f := range under {
		f.stop()
	}
}

// fetching is the goroutine that fetches the keys of an issuer.
type fetching struct {
	issuer  string
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func startFetching(ctx context.Context, i *issuer) *fetching {
	ctx, cancel := context.WithCancel(ctx)
	f := &fetching{issuer: i.name, cancel: cancel}
	f.running.Go(func() { i.keys.Run(ctx) })
	return f
}

// stop ends it, and waits until it has ended.
func (f *fetching) stop() {
	f.cancel()
	f.running.Wait()
}

// Observer is told how issuers are. Its methods must not wait for anything.
type Observer interface {
	// IssuerFetched is what came of a fetch of an issuer's keys.
	IssuerFetched(issuer string, err error)
	// IssuerGone says that an issuer is no longer asked.
	IssuerGone(issuer string)
}

type unobserved struct{}

func (unobserved) IssuerFetched(string, error) {}
func (unobserved) IssuerGone(string)           {}

// Options are those of a [Guard].
type Options struct {
	// Tokens is nil if there is no file of tokens.
	Tokens   *File
	Settings Settings
	// ReadOnly refuses all changes.
	ReadOnly bool
	// Observer and Logger may be nil.
	Observer Observer
	Logger   *slog.Logger
}
