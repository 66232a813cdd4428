// Package faultproxy is a TCP proxy that misbehaves on demand: it stands between
// a client and one server, and is slow, silent, a black hole or gone.
//
// Like package service it knows nothing of package testing, since the figures
// use it too; the tests use testenv.NewProxy. Product code imports neither.
package faultproxy

import (
	"context"
	"net"
	"sync"
	"time"
)

// burst is for how long an idle link saves up its capacity. Without it a link whose
// timers are late would lose that time at each chunk, and be slower than it says.
const burst = 10 * time.Millisecond

// Proxy forwards TCP connections to one upstream address, and misbehaves on
// demand. All methods take effect at once, on live connections too, and may be
// called concurrently.
type Proxy struct {
	listener net.Listener
	done     chan struct{} // closed by Close
	wg       sync.WaitGroup

	mu       sync.Mutex
	upstream string
	faults   faults
	changed  chan struct{} // closed and replaced when faults change
	pipes    map[*pipe]struct{}
	requests direction
	replies  direction
}

type faults struct {
	swallow, blackhole, refuse bool
	delay                      time.Duration
}

// direction is one direction of the link, of all connections together.
type direction struct {
	rate    int       // bytes a second, 0 for no limit
	free    time.Time // when the link has carried all that it was given
	carried int64     // bytes
}

// New listens on a free port of 127.0.0.1 and forwards to upstream, a host and
// port. Who makes it closes it.
func New(ctx context.Context, upstream string) (*Proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		upstream: upstream, listener: listener,
		done: make(chan struct{}), changed: make(chan struct{}), pipes: map[*pipe]struct{}{},
	}
	p.wg.Go(p.accept)
	return p, nil
}

// Forward leads connections from now on to another upstream: a server that is to
// tell its clients the proxy's address is started after the proxy.
func (p *Proxy) Forward(upstream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = upstream
}

func (p *Proxy) forwardsTo() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upstream
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

// Refuse closes new connections at once; live ones stay open.
func (p *Proxy) Refuse(on bool) { p.set(func(f *faults) { f.refuse = on }) }

// Delay holds each request for d. It still arrives when the client gives up
// and closes its connection meanwhile.
func (p *Proxy) Delay(d time.Duration) { p.set(func(f *faults) { f.delay = d }) }

// Rate lets so many bytes of requests through in a second, those of all
// connections together; 0 is no limit. As on a slow link, what the proxy has not
// passed on stays with the client, but for a buffer of 128 KiB a connection.
// Replies are not slowed down, see [Proxy.RateReplies].
func (p *Proxy) Rate(bytesPerSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests.rate = bytesPerSecond
	for l := range p.pipes {
		l.narrow(bytesPerSecond)
	}
}

// RateReplies is [Proxy.Rate] of the other direction, which has a capacity of its own.
func (p *Proxy) RateReplies(bytesPerSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies.rate = bytesPerSecond
}

// Carried is how many bytes of requests and of replies the link has taken so far.
func (p *Proxy) Carried() (requests, replies int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests.carried, p.replies.carried
}

// isSlow reports whether requests are limited.
func (p *Proxy) isSlow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests.rate > 0
}

// carry waits while a direction of the link carries n bytes more; false means that
// done was closed.
func (p *Proxy) carry(on *direction, n int, done <-chan struct{}) bool {
	p.mu.Lock()
	on.carried += int64(n)
	if on.rate == 0 {
		p.mu.Unlock()
		return true
	}
	if least := time.Now().Add(-burst); on.free.Before(least) {
		on.free = least
	}
	on.free = on.free.Add(time.Duration(n) * time.Second / time.Duration(on.rate))
	timer := time.NewTimer(time.Until(on.free))
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

// Close ends all connections and waits for the proxy's goroutines. It is called once.
func (p *Proxy) Close() {
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
		if f, _ := p.now(); f.refuse || !p.add(l) {
			l.reset()
			continue
		}
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
		l.narrow(p.requests.rate)
		return true
	}
}
