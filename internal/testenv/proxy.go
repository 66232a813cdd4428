package testenv

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards TCP connections to one upstream address, and misbehaves on
// demand. All methods take effect at once, on live connections too, and may be
// called concurrently. The test's end closes it.
type Proxy struct {
	t        testing.TB
	upstream string
	listener net.Listener
	done     chan struct{} // closed at the end of the test
	wg       sync.WaitGroup

	mu      sync.Mutex
	faults  faults
	changed chan struct{} // closed and replaced when faults change
	links   map[*link]struct{}
}

type faults struct {
	swallow, blackhole, refuse bool
	delay                      time.Duration
}

// NewProxy listens on a free port of 127.0.0.1 and forwards to upstream, a
// host and port.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{
		t: t, upstream: upstream, listener: listener,
		done: make(chan struct{}), changed: make(chan struct{}), links: map[*link]struct{}{},
	}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is the host and port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SwallowReplies lets requests pass and throws replies away. A connection that
// lost a reply stays silent and open after SwallowReplies(false), because the
// rest of its replies would make no sense; new connections work.
func (p *Proxy) SwallowReplies(on bool) { p.set(func(f *faults) { f.swallow = on }) }

// Blackhole lets nothing pass in either direction, while connections stay and
// new ones are accepted. What was on the way arrives after Blackhole(false),
// as after a healed partition, even if the sender has closed meanwhile.
func (p *Proxy) Blackhole(on bool) { p.set(func(f *faults) { f.blackhole = on }) }

// Refuse closes new connections at once; live ones go on.
func (p *Proxy) Refuse(on bool) { p.set(func(f *faults) { f.refuse = on }) }

// Delay holds each request for d. It still arrives when the client gives up
// and closes its connection meanwhile.
func (p *Proxy) Delay(d time.Duration) { p.set(func(f *faults) { f.delay = d }) }

// Cut resets every live connection on both sides; what was on the way is lost.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

func (p *Proxy) set(change func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.faults)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) now() (faults, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults, p.changed
}

func (p *Proxy) close() {
	close(p.done)
	_ = p.listener.Close()
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		l := &link{proxy: p, client: conn.(*net.TCPConn), done: make(chan struct{})}
		if f, _ := p.now(); f.refuse || !p.add(l) {
			l.reset()
			continue
		}
		p.wg.Go(func() {
			l.run()
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.links, l)
		})
	}
}

// add makes the connection known to Cut, unless the proxy has closed.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return false
	default:
		p.links[l] = struct{}{}
		return true
	}
}
