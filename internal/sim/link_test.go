package sim

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

// databaseEdge is the database and the way to it.
type databaseEdge struct {
	w          *world
	server     *database
	skew       time.Duration
	isAway     bool
	isFlaky    bool
	ofMuch     bool // what is flaky are bridges' commits of several writes, as of an operation and its message, and nothing else
	isSlow     bool
	links      []*link // in the order in which they were made, those that have ended, too, for a while
	made       int
	statements int
	briefs     map[string]string // statements as the story tells them
}

func (e *databaseEdge) start(w *world) {
	if e.w = w; !w.plan.box.isThere {
		return
	}
	e.briefs = map[string]string{}
	e.skew = w.plan.box.skew
	e.server = newDatabase(func() time.Time { return w.began.Add(w.now() + e.skew) })
	e.server.committed, e.server.rolled = w.model.committed, w.model.rolledBack
}

func (e *databaseEdge) close() {
	if e.server != nil {
		e.server.close()
	}
}

// set sets its clock.
func (e *databaseEdge) set(skew time.Duration) { e.skew = skew }

// heal ends all that is the matter with it.
func (e *databaseEdge) heal() {
	e.isFlaky, e.isSlow, e.isAway = false, false, false
	e.set(e.w.plan.box.skew)
}

// leave has the database be away: nobody reaches it, and what was not committed is lost.
func (e *databaseEdge) leave(isAway bool) {
	if e.isAway = isAway; !isAway {
		return
	}
	for _, l := range e.links {
		e.drop(l, 0)
	}
}

// cut ends all connections of a host: the server notices soon, or late.
func (e *databaseEdge) cut(h *host) {
	for _, l := range e.links {
		if l.h == h {
			e.drop(l, e.w.between(time.Millisecond, 20*time.Second))
		}
	}
}

// drop ends a connection at once, and its session after a while.
func (e *databaseEdge) drop(l *link, noticed time.Duration) {
	l.cut()
	if noticed == 0 {
		e.server.leave(l.session)
		return
	}
	e.w.after(noticed, "", func() { e.server.leave(l.session) })
}

// connector is how a host connects.
type connector struct{ h *host }

// Driver implements [driver.Connector].
func (connector) Driver() driver.Driver { return &mysql.MySQLDriver{} }

// Connect implements [driver.Connector].
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	type dialled struct {
		l   *link
		err error
	}
	done := make(chan dialled, 1)
	w := c.h.w
	w.ask(c.h.name+" connects to the database", func() {
		c.h.count()
		w.after(w.between(100*time.Microsecond, 2*time.Millisecond)+max(0, c.h.stalled-w.now()), "", func() {
			if c.h.dead() || w.database.isAway {
				done <- dialled{nil, errRefused}
				return
			}
			done <- dialled{w.database.link(c.h), nil}
		})
	})
	select {
	case d := <-done:
		if d.err != nil {
			return nil, d.err
		}
		return d.l, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (e *databaseEdge) link(h *host) *link {
	if len(e.links) > 200 {
		kept := e.links[:0]
		for _, l := range e.links {
			if !l.session.isGone {
				kept = append(kept, l)
			}
		}
		e.links = kept
	}
	e.made++
	l := &link{h: h, session: &session{name: fmt.Sprintf("%s#%d", h.name, e.made)}, broken: make(chan struct{})}
	e.links = append(e.links, l)
	return l
}

// link is the client's end of a connection to the database.
type link struct {
	h       *host
	session *session
	broken  chan struct{} // closed when it is cut
	once    sync.Once
}

// cut ends it for the client.
func (l *link) cut() { l.once.Do(func() { close(l.broken) }) }

// IsValid implements [driver.Validator].
func (l *link) IsValid() bool { return !isClosed(l.broken) }

// Prepare implements [driver.Conn]. Nobody prepares.
func (l *link) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }

// Close implements [driver.Conn].
func (l *link) Close() error {
	if !l.IsValid() {
		return nil // The server notices some time.
	}
	l.cut()
	l.h.w.ask(l.session.name+" closes", func() { l.h.w.database.server.leave(l.session) })
	return nil
}

// Begin implements [driver.Conn]. Nobody calls it.
func (l *link) Begin() (driver.Tx, error) { return nil, errors.ErrUnsupported }

// BeginTx implements [driver.ConnBeginTx].
func (l *link) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	if _, err := l.do(ctx, "START TRANSACTION", nil); err != nil {
		return nil, err
	}
	return transactionEnd{l}, nil
}

// ExecContext implements [driver.ExecerContext].
func (l *link) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	return l.do(ctx, text, args)
}

// QueryContext implements [driver.QueryerContext].
func (l *link) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	r, err := l.do(ctx, text, args)
	if err != nil {
		return nil, err
	}
	return &yielded{result: r}, nil
}

// transactionEnd ends one.
type transactionEnd struct{ l *link }

// Commit implements [driver.Tx].
func (t transactionEnd) Commit() error {
	_, err := t.l.do(context.Background(), "COMMIT", nil)
	return err
}

// Rollback implements [driver.Tx].
func (t transactionEnd) Rollback() error {
	_, err := t.l.do(context.Background(), "ROLLBACK", nil)
	return err
}

// yielded are rows that have come.
type yielded struct {
	result
	at int
}

// Columns implements [driver.Rows].
func (y *yielded) Columns() []string { return y.columns }

// Close implements [driver.Rows].
func (y *yielded) Close() error { return nil }

// Next implements [driver.Rows].
func (y *yielded) Next(dest []driver.Value) error {
	if y.at >= len(y.rows) {
		return io.EOF
	}
	copy(dest, y.rows[y.at])
	y.at++
	return nil
}

// answered is what came back of a statement.
type answered struct {
	r   result
	err error
}

// do has the server run a statement. As the driver does, it gives the connection up where ctx ends.
func (l *link) do(ctx context.Context, text string, args []driver.NamedValue) (result, error) {
	if !l.IsValid() {
		return result{}, driver.ErrBadConn
	}
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	var order strings.Builder
	fmt.Fprintf(&order, "%s %s", l.session.name, text)
	for _, a := range args {
		fmt.Fprintf(&order, "\x00%v", a.Value)
	}
	back := make(chan answered, 1)
	w := l.h.w
	w.ask(order.String(), func() { w.database.asked(l, text, args, func(a answered) { back <- a }) })
	select {
	case a := <-back:
		return a.r, a.err
	case <-l.broken:
		return result{}, mysql.ErrInvalidConn
	case <-ctx.Done():
		l.cut()
		w.ask(l.session.name+" gives up", func() { w.database.drop(l, w.between(time.Millisecond, 20*time.Second)) })
		return result{}, ctx.Err()
	}
}

// How long a session waits for a lock: innodb_lock_wait_timeout of ours, and the default.
const lockPatience, lockDefault = time.Second, 50 * time.Second

// hangs is for how long a connection is taken to be there of which nothing is heard.
const hangs = 40 * time.Second

// asked decides what becomes of a statement that a client has sent.
func (e *databaseEdge) asked(l *link, text string, args []driver.NamedValue, back func(answered)) {
	w := e.w
	l.h.count()
	e.statements++
	there, home := w.between(50*time.Microsecond, 2*time.Millisecond), w.between(50*time.Microsecond, 2*time.Millisecond)
	if e.isSlow {
		there += time.Duration(w.random.Int64N(int64(1500 * time.Millisecond)))
	}
	there += max(0, l.h.stalled-w.now())
	if e.isAway {
		w.after(there, "", func() { e.drop(l, 0) })
		return
	}
	fate := 99
	switch {
	case e.isFlaky && !e.ofMuch:
		fate = w.random.IntN(40)
	case e.isFlaky && text == "COMMIT" && len(l.session.writes) > 1 && strings.HasPrefix(l.h.name, "bridge"):
		if fate = 0; w.chance(10) {
			fate = w.random.IntN(6)
		}
	}
	noticed := func() time.Duration { return w.between(time.Millisecond, 20*time.Second) }
	name := l.session.name + ": " + e.brief(text)
	run := func(then func(answered)) {
		if l.session.isGone {
			return
		}
		st := &statement{s: l.session, text: text, args: args, patience: lockDefault}
		if strings.HasPrefix(l.h.name, "bridge") {
			st.patience = lockPatience
		}
		isDone := false
		st.done = func(r result, err error) {
			isDone = true
			w.tell(fmt.Sprintf("  %s yields %s", l.session.name, r.brief(err)))
			then(answered{r, err})
		}
		e.server.try(st)
		if !isDone {
			w.tell("  " + l.session.name + " waits for " + l.session.blocks.name)
			w.after(st.patience, "", func() { e.server.giveUp(st) })
		}
	}
	answer := func(a answered) {
		w.after(home+max(0, l.h.stalled-w.now()), "", func() {
			if !isClosed(l.broken) {
				back(a)
			}
		})
	}
	switch fate {
	case 0:
		w.after(there, name+" is lost", func() { e.drop(l, noticed()) })
	case 1:
		w.after(there, name+", whose answer is lost", func() { run(func(answered) { e.drop(l, noticed()) }) })
	case 2:
		l.h.unheard = w.now() + hangs
		w.tell(name + " vanishes")
		w.after(hangs, "", func() { e.drop(l, 1) })
	case 3:
		l.h.unheard = w.now() + there + hangs
		w.after(there, name+", of which nothing is heard", func() { run(func(answered) { w.after(hangs, "", func() { e.drop(l, 1) }) }) })
	case 4:
		w.after(w.between(time.Millisecond, 5*time.Second), name+" late", func() { run(answer) })
	default:
		w.after(there, name, func() { run(answer) })
	}
}

// brief is a statement in the story.
func (e *databaseEdge) brief(text string) string {
	told, ok := e.briefs[text]
	if !ok {
		told = strings.Join(strings.Fields(text), " ")
		if from := strings.Index(told, " FROM "); from > 40 {
			told = told[:20] + "…" + told[from:]
		}
		told = told[:min(len(told), 160)]
		if len(e.briefs) > 2000 {
			clear(e.briefs)
		}
		e.briefs[text] = told
	}
	return told
}

func (r result) brief(err error) string {
	if err != nil {
		return err.Error()
	}
	if len(r.columns) == 0 {
		return fmt.Sprint(r.changed)
	}
	if len(r.columns) > 6 || len(r.rows) > 3 {
		return fmt.Sprintf("%d rows", len(r.rows))
	}
	return fmt.Sprint(r.rows)
}
