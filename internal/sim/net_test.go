package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

var (
	errReset   = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	errPipe    = &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
)

// redisEdge is Redis and the way to it.
type redisEdge struct {
	w        *world
	server   *redisServer
	skew     time.Duration
	skews    []skewed // what its clock was set to, and when
	isAway   bool
	isFlaky  bool
	focus    int // the fate of a third of what it does then; from 6 on there is none
	isSlow   bool
	replicas bool // they are there
	lagging  []*replica
	dials    int
	commands int
}

type skewed struct {
	at   time.Duration
	skew time.Duration
}

// epoch is what Redis' clock says when a story begins.
func (e *redisEdge) clock() time.Time { return e.w.began.Add(e.w.now() + e.skew) }

func (e *redisEdge) start(w *world) {
	e.w, e.replicas = w, true
	e.skews = []skewed{{0, 0}}
	e.server = newRedisServer(e.clock)
	e.server.effect, e.server.claims = w.model.effect, w.model.claimed
	e.server.starts = w.model.starts
	e.server.published = func(channel, _ string) { w.hinted(channel) }
}

func (e *redisEdge) set(skew time.Duration) {
	e.skew = skew
	e.skews = append(e.skews, skewed{e.w.now(), skew})
}

// highest is the latest that the clock has said since then.
func (e *redisEdge) highest(since time.Duration) time.Time {
	var latest time.Duration
	for i, s := range e.skews {
		end := e.w.now()
		if i+1 < len(e.skews) {
			end = e.skews[i+1].at
		}
		if end >= since {
			latest = max(latest, end+s.skew)
		}
	}
	return e.w.began.Add(latest)
}

// leave has Redis be away: nobody reaches it, and all connections end.
func (e *redisEdge) leave(isAway bool) {
	if e.isAway = isAway; !isAway {
		return
	}
	for _, h := range e.w.hosts {
		e.w.mu.Lock()
		conns := sortedConns(h.conns)
		e.w.mu.Unlock()
		for _, c := range conns {
			c.cut(errReset)
		}
	}
}

func sortedConns(conns map[*conn]bool) []*conn {
	all := make([]*conn, 0, len(conns))
	for c := range conns {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *conn) int { return a.number - b.number })
	return all
}

// client is a client of Redis as the bridge makes one, for a host.
func (h *host) client() *redis.Client {
	redis.SetLogger(noLogger{})
	return redis.NewClient(&redis.Options{
		Addr: "redis:6379", Protocol: 2, DialTimeout: 2 * time.Second, DialerRetries: 1, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second,
		ContextTimeoutEnabled: true, DisableIdentity: true, PoolSize: 256, MinRetryBackoff: -1, MaxRetryBackoff: -1, MaxIdleConns: 32, ConnMaxIdleTime: -1,
		ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10, PipelineReadBufferSize: 4 << 10, PipelineWriteBufferSize: 4 << 10,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return h.dial() },
	})
}

type noLogger struct{}

func (noLogger) Printf(context.Context, string, ...any) {}

func (h *host) dial() (net.Conn, error) {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if h.isDead || h.w.redis.isAway {
		return nil, errRefused
	}
	h.w.redis.dials++
	c := &conn{h: h, number: h.w.redis.dials, news: make(chan struct{}, 1)}
	h.conns[c] = true
	return c, nil
}

// conn is the client's end of a connection to Redis.
type conn struct {
	h      *host
	number int
	news   chan struct{} // of 1: something came

	mu       sync.Mutex
	out      string     // sent, and no whole command yet
	asks     [][]string // sent, and not taken by the world yet
	in       []byte     // received, and not read yet
	err      error      // it was cut
	deadline time.Time
	// request counts what was asked; isAnswered: what was asked last was answered.
	request    int
	isAnswered bool
}

// Write hands the commands to the world.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, errPipe
	}
	c.out += string(b)
	sent := c.out
	var commands [][]string
	for {
		command, rest := cutCommand(c.out)
		if command == nil {
			break
		}
		commands, c.out = append(commands, command), rest
	}
	if len(commands) == 0 {
		return len(b), nil
	}
	switch strings.ToLower(commands[0][0]) {
	case "hello", "client", "select", "info": // The handshake takes no time; nor does what is asked under a lock.
		for _, command := range commands {
			if command[0] == "info" {
				c.in = appendReply(c.in, "connected_slaves:0\r\n")
			} else {
				c.in = append(c.in, "-ERR unknown command\r\n"...)
			}
		}
		c.signal()
		return len(b), nil
	}
	// What a client writes in several pieces at one instant stays together, and in order.
	if c.asks = append(c.asks, commands...); len(c.asks) == len(commands) {
		c.h.w.ask(c.h.name+sent, func() { c.h.w.redis.asked(c, c.takeAsks()) })
	}
	return len(b), nil
}

func (c *conn) takeAsks() (asks [][]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asks, c.asks = c.asks, nil
	return asks
}

func (c *conn) signal() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// Read yields until an answer has come.
func (c *conn) Read(b []byte) (int, error) {
	for {
		c.mu.Lock()
		if len(c.in) > 0 {
			n := copy(b, c.in)
			c.in = c.in[n:]
			c.mu.Unlock()
			return n, nil
		}
		err := c.err
		c.mu.Unlock()
		if err != nil {
			return 0, err
		}
		<-c.news
	}
}

// awaits has the client wait for an answer no longer than it has said. A timer of Go's would
// not do: which of two fires first, that are due at once, is left to chance.
func (c *conn) awaits() {
	c.mu.Lock()
	c.request++
	c.isAnswered = false
	request, deadline := c.request, c.deadline
	c.mu.Unlock()
	if deadline.IsZero() {
		return
	}
	c.h.w.after(time.Until(deadline), "", func() {
		c.mu.Lock()
		late := c.request == request && !c.isAnswered
		c.mu.Unlock()
		if late {
			c.cut(&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded})
		}
	})
}

// answer has the client receive something.
func (c *conn) answer(b []byte) {
	c.mu.Lock()
	c.in, c.isAnswered = append(c.in, b...), true
	c.mu.Unlock()
	c.signal()
}

// cut ends the connection.
func (c *conn) cut(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.signal()
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.cut(io.EOF)
	c.h.w.mu.Lock()
	defer c.h.w.mu.Unlock()
	delete(c.h.conns, c)
	return nil
}

// SetReadDeadline implements [net.Conn].
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return nil
}

// SetDeadline implements [net.Conn].
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline implements [net.Conn].
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr implements [net.Conn].
func (c *conn) LocalAddr() net.Addr { return &net.TCPAddr{Port: c.number} }

// RemoteAddr implements [net.Conn].
func (c *conn) RemoteAddr() net.Addr { return &net.TCPAddr{Port: 6379} }

// asked decides what becomes of commands that a client has sent.
func (e *redisEdge) asked(c *conn, commands [][]string) {
	w := e.w
	c.h.count()
	c.awaits()
	there, back := w.between(100*time.Microsecond, 2*time.Millisecond), w.between(100*time.Microsecond, 2*time.Millisecond)
	if e.isSlow {
		late := time.Duration(w.random.Int64N(int64(1500 * time.Millisecond)))
		if w.chance(3) {
			back += late
		} else {
			there += late
		}
	}
	there += max(0, c.h.stalled-w.now())
	const late = 10 * time.Second
	fate := 99
	if e.isFlaky {
		fate = w.random.IntN(12)
		if e.focus < 6 && w.chance(3) {
			fate = e.focus
		}
	}
	if e.isAway {
		w.after(there, "", func() { c.cut(errReset) })
		return
	}
	name := e.describe(c.h, commands)
	switch fate {
	case 0:
		w.after(w.between(time.Millisecond, time.Second), name+" is lost", func() { c.cut(errReset) })
	case 1:
		w.after(there, name+", whose answer is lost", func() { e.execute(c, commands) })
		w.after(there+w.between(time.Millisecond, time.Second), "", func() { c.cut(errReset) })
	case 2: // Nothing is ever heard of it.
		w.tell(name + " vanishes")
	case 3:
		w.after(w.between(time.Millisecond, late), name+" late", func() { e.execute(c, commands) })
		if w.chance(2) { // It is in Redis' buffer; who asks knows that it has no connection any more.
			w.after(w.between(time.Millisecond, time.Second), "", func() { c.cut(errReset) })
		}
	case 4:
		w.after(there, name, func() { e.reply(c, e.execute(c, commands), back) })
		if e.mayDouble(commands) {
			w.after(there+w.between(time.Millisecond, late), name+" once more", func() { e.execute(c, commands) })
		}
	case 5:
		some := w.random.IntN(len(commands) + 1)
		w.after(there, fmt.Sprintf("%s, %d of them", name, some), func() {
			e.reply(c, e.execute(c, commands[:some]), back)
			w.after(back+time.Microsecond, "", func() { c.cut(errReset) })
		})
	default:
		w.after(there, name, func() { e.reply(c, e.execute(c, commands), back) })
	}
}

// execute runs commands that have come.
func (e *redisEdge) execute(c *conn, commands [][]string) []byte {
	if e.isAway {
		return nil
	}
	var answer []byte
	replies := make([]any, len(commands))
	for i, command := range commands {
		e.commands++
		e.server.by = c.h
		if command[0] == "wait" && !e.replicas {
			replies[i] = int64(0)
		} else {
			replies[i] = e.server.run(command)
		}
		if command[0] == "wait" && e.replicas {
			for _, r := range e.lagging {
				e.w.follows(r)
			}
		}
		if e.server.lacks != "" {
			e.w.fail("redis_test.go lacks %s", e.server.lacks)
		}
		if e.server.broke != "" {
			e.w.fail("script: %s", e.server.broke)
		}
		if e.server.ran == "claim" {
			c.h.claimed(1)
		}
		e.w.watch(c.h, command, replies[i])
		e.w.model.ran(replies[i])
		answer = appendReply(answer, replies[i])
		if recording != nil {
			recording(e.clock(), command, replies[i])
		}
	}
	e.server.by = nil
	e.w.tellAnswer(answer, replies)
	e.w.model.meet()
	return answer
}

// watch tells all of a command that names the id that is watched.
func (w *world) watch(h *host, command []string, reply any) {
	if *watched == "" || w.log == nil || !slices.ContainsFunc(command, func(arg string) bool { return strings.HasSuffix(arg, *watched) }) {
		return
	}
	w.log("%14s     %s: %s %.300q: %s", w.now(), h.name, w.redis.server.ran, command[2:], printable([]any{reply}))
}

func (e *redisEdge) reply(c *conn, answer []byte, back time.Duration) {
	back += max(0, c.h.stalled-e.w.now())
	e.w.after(back, "", func() {
		if e.isAway {
			c.cut(errReset)
			return
		}
		c.answer(answer)
	})
}

// mayDouble reports whether all of it may be delivered once more after it was answered. The
// producers' verbs may not: what they answer without a trace is true once, see package store.
func (e *redisEdge) mayDouble(commands [][]string) bool {
	return !slices.ContainsFunc(commands, func(command []string) bool {
		switch e.verbOf(command) {
		case "claim", "settle", "reclaim", "confirm", "parked", "handover", "heartbeat", "layout", "fence":
			return false
		}
		return true
	})
}

// verbOf is the script's, or the command's name.
func (e *redisEdge) verbOf(command []string) string {
	name := strings.ToLower(command[0])
	if name == "evalsha" && e.server.known[command[1]] {
		return theEngine.scripts[command[1]].verb
	}
	return name
}

// describe names commands in the story, without what is left to chance.
func (e *redisEdge) describe(h *host, commands [][]string) string {
	names := make([]string, len(commands))
	for i, command := range commands {
		if names[i] = e.verbOf(command); len(command) > 3 {
			names[i] += " " + shortKey(command[3])
		}
	}
	if len(names) > 4 {
		names = append(names[:4], fmt.Sprintf("and %d more", len(commands)-4))
	}
	return h.name + ": " + strings.Join(names, ", ")
}

// shortKey is the part of a key that tells the shard.
func shortKey(key string) string {
	from, to := strings.IndexByte(key, '{'), strings.IndexByte(key, '}')
	if from < 0 || to < from {
		return kind(key)
	}
	return key[from+1 : to]
}

func printable(replies []any) string {
	text := fmt.Sprint(replies)
	text = text[:min(len(text), 240)]
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return '.'
		}
		return r
	}, text)
}

var errCut = errors.New("the process has ended")
