package faultproxy

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

func (l *pipe) run() {
	defer l.reset()
	if !l.pass() || !l.dial() {
		return
	}
	requests := make(chan chunk, chunkQueue)
	var wg sync.WaitGroup
	wg.Go(func() { l.readRequests(requests) })
	wg.Go(func() { l.deliver(requests) })
	wg.Go(l.returnReplies)
	wg.Wait()
}

// reset closes both sides without grace and discards what is held.
func (l *pipe) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isReset {
		return
	}
	l.isReset = true
	close(l.done)
	for _, conn := range []*net.TCPConn{l.client, l.upstream} {
		if conn != nil {
			_ = conn.SetLinger(0)
			_ = conn.Close()
		}
	}
}

// narrow bounds what the kernel takes from the client ahead of a slow link.
func (l *pipe) narrow(rate int) {
	if rate > 0 {
		_ = l.client.SetReadBuffer(narrowBuffer)
	}
}

func (l *pipe) dial() bool {
	conn, err := net.DialTimeout("tcp", l.proxy.forwardsTo(), dialTimeout) //nolint:noctx // local, and bounded
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isReset {
		_ = conn.Close()
		return false
	}
	l.upstream = conn.(*net.TCPConn)
	return true
}

// pass waits while the proxy is a black hole; false means the link was reset.
func (l *pipe) pass() bool {
	for {
		f, changed := l.proxy.now()
		if !f.blackhole {
			return true
		}
		select {
		case <-changed:
		case <-l.done:
			return false
		}
	}
}

// readRequests ends at the client's end of file or error; what it has read is
// delivered all the same.
func (l *pipe) readRequests(requests chan<- chunk) {
	defer close(requests)
	for {
		size := chunkBytes
		if l.proxy.isSlow() {
			size = narrowChunk
		}
		buf := make([]byte, size)
		n, err := l.client.Read(buf)
		if n > 0 {
			if !l.proxy.carry(&l.proxy.requests, n, l.done) {
				return
			}
			f, _ := l.proxy.now()
			select {
			case requests <- chunk{bytes: buf[:n], from: time.Now().Add(f.delay)}:
			case <-l.done:
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
func (l *pipe) deliver(requests <-chan chunk) {
	for c := range requests {
		if !l.waitUntil(c.from) || !l.pass() {
			return
		}
		if _, err := l.upstream.Write(c.bytes); err != nil {
			l.reset()
			return
		}
	}
	_ = l.upstream.CloseWrite()
}

func (l *pipe) waitUntil(instant time.Time) bool {
	timer := time.NewTimer(time.Until(instant))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}

// returnReplies continues to read after the client has left, for deliver's sake.
func (l *pipe) returnReplies() {
	buf := make([]byte, chunkBytes)
	var mute bool // a reply was lost, or the client has left
	for {
		n, err := l.upstream.Read(buf)
		if n > 0 {
			if !l.proxy.carry(&l.proxy.replies, n, l.done) || !l.pass() {
				return
			}
			f, _ := l.proxy.now()
			mute = mute || f.swallow
			if !mute {
				_, failed := l.client.Write(buf[:n])
				mute = failed != nil
			}
		}
		if err != nil {
			if f, _ := l.proxy.now(); l.pass() && !mute && !f.swallow {
				_ = l.client.CloseWrite()
			}
			return
		}
	}
}
