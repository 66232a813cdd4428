package overhttp

import "sync"

// routesMost bounds the routes that a sink remembers, beside those in use.
const routesMost = 4096

// Routes are what a sink knows of its routes, by name.
type Routes[R any] struct {
	open func(name string) R

	mu     sync.Mutex
	byName map[string]*used[R]
}

type used[R any] struct {
	route R
	uses  int
}

// NewRoutes are none yet. open makes one that is used for the first time, or again after it was forgotten.
func NewRoutes[R any](open func(name string) R) *Routes[R] {
	return &Routes[R]{open: open, byName: map[string]*used[R]{}}
}

// Use returns a route, which the caller gives back by done.
func (r *Routes[R]) Use(name string) (route R, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName[name] == nil {
		r.forget()
		r.byName[name] = &used[R]{route: r.open(name)}
	}
	of := r.byName[name]
	of.uses++
	return of.route, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		of.uses--
	}
}

// forget makes room. It is called with r.mu held.
func (r *Routes[R]) forget() {
	if len(r.byName) < routesMost {
		return
	}
	for name, of := range r.byName {
		if of.uses == 0 {
			delete(r.byName, name)
		}
	}
}

// Find is the name of a route of which is is true; empty if there is none.
func (r *Routes[R]) Find(is func(R) bool) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, of := range r.byName {
		if is(of.route) {
			return name
		}
	}
	return ""
}
