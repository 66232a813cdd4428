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
	pipes   map[*pipe]struct{}
	free    time.Time // when the link has carried all that it was given, see Rate
}

type faults struct {
	swallow, blackhole, refuse bool
	delay                      time.Duration
	rate                       int
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
		done: make(chan struct{}), changed: make(chan struct{}), pipes: map[*pipe]struct{}{},
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

// Rate lets so many bytes of requests through in a second, those of all
// connections together; 0 is no limit. As on a slow link, what the proxy has not
// passed on stays with the client, but for a buffer of 128 KiB. Replies are not
// slowed down.
func (p *Proxy) Rate(bytesPerSecond int) {
	p.set(func(f *faults) { f.rate = bytesPerSecond })
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.pipes {
		l.narrow(bytesPerSecond)
	}
}

// carry waits while the link carries n bytes more; false means that done was closed.
func (p *Proxy) carry(n int, done <-chan struct{}) bool {
	p.mu.Lock()
	if p.faults.rate == 0 {
		p.mu.Unlock()
		return true
	}
	if now := time.Now(); p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(n) * time.Second / time.Duration(p.faults.rate))
	timer := time.NewTimer(time.Until(p.free))
	p.mu.Unlock()
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}

// Cut resets every live connection on both sides; what was on the way is lost.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.pipes {
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
		l := &pipe{proxy: p, client: conn.(*net.TCPConn), done: make(chan struct{})}
		f, _ := p.now()
		if f.refuse || !p.add(l) {
			l.reset()
			continue
		}
		l.narrow(f.rate)
		p.wg.Go(func() {
			l.run()
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.pipes, l)
		})
	}
}

// add makes the connection known to Cut, unless the proxy has closed.
func (p *Proxy) add(l *pipe) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return false
	default:
		p.pipes[l] = struct{}{}
		return true
	}
}
