package redial_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks/redial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	pause  = time.Second
	stable = time.Minute
)

var errRefused = errors.New("refused")

// conn ends when the test says so.
type conn struct {
	end    func()
	done   chan struct{}
	closed int
}

func newConn() *conn {
	c := &conn{done: make(chan struct{})}
	c.end = sync.OnceFunc(func() { close(c.done) })
	return c
}

func (c *conn) Done() <-chan struct{} { return c.done }
func (c *conn) Err() error            { return errors.New("cut") }
func (c *conn) Server() string        { return "server:1" }
func (c *conn) Close()                { c.end(); c.closed++ }

// dialer answers as the test says, and counts.
type dialer struct {
	attempts int
	answer   func(ctx context.Context) (*conn, error)
}

func (d *dialer) dial(ctx context.Context) (*conn, error) {
	d.attempts++
	return d.answer(ctx)
}

func works(context.Context) (*conn, error) { return newConn(), nil }
func fails(context.Context) (*conn, error) { return nil, errRefused }

// open runs f, in virtual time, with a Redialer that is closed after it.
func open(t *testing.T, f func(t *testing.T, r *redial.Redialer[*conn], d *dialer, log *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, log := &dialer{answer: works}, &bytes.Buffer{}
		r := redial.New(redial.Config[*conn]{
			Broker: "NATS", Dial: d.dial, Initial: pause, Limit: 4 * pause, Stable: stable,
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		f(t, r, d, log)
		require.NoError(t, r.Close(t.Context()))
	})
}

func TestOneDialForAllCallers(t *testing.T) {
	t.Parallel()
	open(t, func(t *testing.T, r *redial.Redialer[*conn], d *dialer, _ *bytes.Buffer) {
		release := make(chan struct{})
		d.answer = func(ctx context.Context) (*conn, error) {
			<-release
			return works(ctx)
		}
		_, ok := r.Current()
		require.False(t, ok)
		require.Zero(t, d.attempts, "nothing is dialled while nobody asks")

		var callers sync.WaitGroup
		var got [8]*conn
		for i := range got {
			callers.Go(func() { got[i], _ = r.Get(t.Context(), i%2 == 0) })
		}
		synctest.Wait()
		hasty, cancel := context.WithTimeoutCause(t.Context(), pause, errRefused)
		defer cancel()
		_, err := r.Get(hasty, false)
		require.ErrorIs(t, err, errRefused, "ctx's cause")
		close(release)
		callers.Wait()
		for _, c := range got {
			require.NotNil(t, c)
			require.Same(t, got[0], c)
		}
		require.Equal(t, 1, d.attempts)
		current, ok := r.Current()
		require.True(t, ok)
		require.Same(t, got[0], current)

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = r.Get(ended, false)
		require.ErrorIs(t, err, context.Canceled, "also where there is a connection")
	})
}

func TestLastErrorUntilThePauseIsOver(t *testing.T) {
	t.Parallel()
	open(t, func(t *testing.T, r *redial.Redialer[*conn], d *dialer, log *bytes.Buffer) {
		d.answer = fails
		for attempts := 1; attempts < 6; attempts++ {
			began := time.Now()
			for range 3 {
				_, err := r.Get(t.Context(), false)
				require.ErrorIs(t, err, errRefused)
			}
			require.Zero(t, time.Since(began), "no call waits out a pause")
			require.Equal(t, attempts, d.attempts)
			require.True(t, wait.Sleep(t.Context(), 4*pause))
		}
		before := d.attempts
		for range 3 {
			_, err := r.Get(t.Context(), true)
			require.ErrorIs(t, err, errRefused)
		}
		require.Equal(t, before+3, d.attempts, "now dials in the pause, too")
		require.Equal(t, 1, strings.Count(log.String(), "sink_connect_failed"), "said once")

		d.answer = works
		_, err := r.Get(t.Context(), true)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(log.String(), "sink_connected"))
	})
}

func TestAConnectionThatEnds(t *testing.T) {
	t.Parallel()
	open(t, func(t *testing.T, r *redial.Redialer[*conn], d *dialer, log *bytes.Buffer) {
		first, err := r.Get(t.Context(), false)
		require.NoError(t, err)
		require.True(t, wait.Sleep(t.Context(), stable))
		first.end()
		second, err := r.Get(t.Context(), false)
		require.NoError(t, err, "after a stable one there is no pause")
		require.NotSame(t, first, second)
		synctest.Wait()
		require.Equal(t, 1, first.closed, "what it ran is waited for")

		second.end()
		_, err = r.Get(t.Context(), false)
		require.ErrorContains(t, err, "cut", "one that was dropped at once counts as a failure")
		require.Equal(t, 2, d.attempts)
		require.True(t, wait.Sleep(t.Context(), 2*pause))
		_, err = r.Get(t.Context(), false)
		require.NoError(t, err)
		require.Equal(t, 2, strings.Count(log.String(), "sink_disconnected"))
	})
}

// A connection's end is logged when it comes, not when somebody asks.
func TestAnEndIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	open(t, func(t *testing.T, r *redial.Redialer[*conn], _ *dialer, log *bytes.Buffer) {
		c, err := r.Get(t.Context(), false)
		require.NoError(t, err)
		c.end()
		synctest.Wait()
		require.Contains(t, log.String(), "sink_disconnected")
		require.Equal(t, 1, c.closed)
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	open(t, func(t *testing.T, r *redial.Redialer[*conn], d *dialer, _ *bytes.Buffer) {
		c, err := r.Get(t.Context(), false)
		require.NoError(t, err)
		require.NoError(t, r.Close(t.Context()))
		require.Equal(t, 1, c.closed)
		_, err = r.Get(t.Context(), true)
		require.ErrorIs(t, err, redial.ErrClosed)
		_, ok := r.Current()
		require.False(t, ok)
		require.Equal(t, 1, d.attempts)
	})
}

func TestCloseWhileDialling(t *testing.T) {
	t.Parallel()
	open(t, func(t *testing.T, r *redial.Redialer[*conn], d *dialer, _ *bytes.Buffer) {
		late, release := newConn(), make(chan struct{})
		d.answer = func(ctx context.Context) (*conn, error) {
			<-ctx.Done() // Close breaks it off, and it succeeds all the same.
			<-release
			return late, nil
		}
		failed := make(chan error, 1)
		go func() {
			_, err := r.Get(t.Context(), false)
			failed <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), pause)
		defer cancel()
		require.ErrorIs(t, r.Close(ctx), context.DeadlineExceeded)
		close(release)
		require.NoError(t, r.Close(t.Context()))
		require.ErrorIs(t, <-failed, redial.ErrClosed)
		require.Equal(t, 1, late.closed, "a connection that came late is closed")
	})
}
