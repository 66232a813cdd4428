package testenv

import (
	"net"
	"sync"
	"time"
)

const (
	chunkBytes  = 32 << 10
	chunkQueue  = 256 // × chunkBytes held for one connection at most
	dialTimeout = 10 * time.Second
	// narrowChunk and narrowBuffer are what a slow link holds. A buffer of less than
	// a packet of the loopback device, 64 KiB, makes TCP stall.
	narrowChunk  = 4 << 10
	narrowBuffer = 64 << 10
)

// pipe is one client's connection through a [Proxy]. Its three goroutines
// read requests, deliver them, and pass replies back; run waits for them.
type pipe struct {
	proxy  *Proxy
	client *net.TCPConn

	mu       sync.Mutex
	upstream *net.TCPConn  // nil until dialled
	done     chan struct{} // closed by reset
	isReset  bool
}

// chunk is a piece of a request and the instant from which it may be
// delivered.
type chunk struct {
	bytes []byte
	from  time.Time
}

func (p *pipe) run() {
	defer p.reset()
	if !p.pass() || !p.dial() {
		return
	}
	requests := make(chan chunk, chunkQueue)
	var wg sync.WaitGroup
	wg.Go(func() { p.readRequests(requests) })
	wg.Go(func() { p.deliver(requests) })
	wg.Go(p.returnReplies)
	wg.Wait()
}

// reset closes both sides without grace and discards what is held.
func (p *pipe) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isReset {
		return
	}
	p.isReset = true
	close(p.done)
	for _, conn := range []*net.TCPConn{p.client, p.upstream} {
		if conn != nil {
			_ = conn.SetLinger(0)
			_ = conn.Close()
		}
	}
}

// narrow bounds what the kernel takes from the client ahead of a slow link.
func (p *pipe) narrow(rate int) {
	if rate > 0 {
		_ = p.client.SetReadBuffer(narrowBuffer)
	}
}

func (p *pipe) dial() bool {
	conn, err := net.DialTimeout("tcp", p.proxy.upstream, dialTimeout) //nolint:noctx // local, and bounded
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isReset {
		_ = conn.Close()
		return false
	}
	p.upstream = conn.(*net.TCPConn)
	return true
}

// pass waits while the proxy is a black hole; false means that it was reset.
func (p *pipe) pass() bool {
	for {
		f, changed := p.proxy.now()
		if !f.blackhole {
			return true
		}
		select {
		case <-changed:
		case <-p.done:
			return false
		}
	}
}

// readRequests ends at the client's end of file or error; what it has read is
// delivered all the same.
func (p *pipe) readRequests(requests chan<- chunk) {
	defer close(requests)
	for {
		size := chunkBytes
		if f, _ := p.proxy.now(); f.rate > 0 {
			size = narrowChunk
		}
		buf := make([]byte, size)
		n, err := p.client.Read(buf)
		if n > 0 {
			if !p.proxy.carry(n, p.done) {
				return
			}
			f, _ := p.proxy.now()
			select {
			case requests <- chunk{bytes: buf[:n], from: time.Now().Add(f.delay)}:
			case <-p.done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// deliver writes the requests to the upstream at their time. At the end it
// closes only its half: a full close could reset the connection before the
// server has read the last request.
func (p *pipe) deliver(requests <-chan chunk) {
	for c := range requests {
		if !p.waitUntil(c.from) || !p.pass() {
			return
		}
		if _, err := p.upstream.Write(c.bytes); err != nil {
			p.reset()
			return
		}
	}
	_ = p.upstream.CloseWrite()
}

func (p *pipe) waitUntil(instant time.Time) bool {
	timer := time.NewTimer(time.Until(instant))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.done:
		return false
	}
}

// returnReplies goes on reading after the client has left, for deliver's sake.
func (p *pipe) returnReplies() {
	buf := make([]byte, chunkBytes)
	var mute bool // a reply was lost, or the client has left
	for {
		n, err := p.upstream.Read(buf)
		if n > 0 {
			if !p.pass() {
				return
			}
			f, _ := p.proxy.now()
			mute = mute || f.swallow
			if !mute {
				_, failed := p.client.Write(buf[:n])
				mute = failed != nil
			}
		}
		if err != nil {
			if f, _ := p.proxy.now(); p.pass() && !mute && !f.swallow {
				_ = p.client.CloseWrite()
			}
			return
		}
	}
}
