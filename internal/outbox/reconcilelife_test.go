package outbox

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/store"
)

// run runs a reconciler until the returned function is called.
func (s *reconciling) run(r *Reconciler) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(s.t, <-done)
	}
}

// noted is the life that the database has.
func (s *reconciling) noted() (life string) {
	s.t.Helper()
	q := s.db.query("").add("SELECT life FROM {t}_queues WHERE queue = ?", s.orders)
	require.NoError(s.t, q.each(s.t.Context(), s.db.db, func(rows *sql.Rows) error { return rows.Scan(&life) }))
	return life
}

func TestReconcilerRunsWhenAQueueIsMadeAnew(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReconciling(t, d)
		r := s.reconciler()
		stop := s.run(r)
		s.eventually("the first life is noted", func() bool { return s.noted() == s.life() })
		s.stored("one", far)
		lost := s.stored("lost", far)
		require.NoError(t, s.rdb.HDel(t.Context(), "x", "y").Err())
		s.settler.Acknowledged(s.orders, []store.SettledRow{{Token: s.token(lost), ID: "lost", Key: "k"}})
		old := s.life()
		s.wipe()
		require.NotEqual(t, old, s.life())
		require.False(t, current(r, s.orders, s.life()))
		r.Changed()
		s.eventually("the new life is noted", func() bool { return s.noted() == s.life() })
		require.NotNil(t, s.find("k", "one"))
		require.Nil(t, s.find("k", "lost"), "its acknowledgement was written first")
		s.eventually("the reconciler knows", func() bool { return current(r, s.orders, s.life()) })
		stop()
		require.Equal(t, 2, s.logs.count("event=outbox_reconciled"))

		// Where the life is the same, nothing is done.
		require.NoError(t, s.store.Producer().Cancel(t.Context(), "one", "k", store.Durability{}).Err)
		s.forget()
		r = s.reconciler()
		stop = s.run(r)
		s.eventually("it has looked", func() bool { return current(r, s.orders, s.life()) })
		stop()
		require.Nil(t, s.find("k", "one"))
	})
}

func (s *reconciling) token(number int64) string {
	s.t.Helper()
	r, _ := s.read(number)
	require.NotNil(s.t, r)
	return r.token
}

func TestReconcilerIsOneOfSeveral(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReconciling(t, d)
		s.stored("one", far)
		require.NoError(t, d.addQueue(t.Context(), s.orders))
		s.wipe()
		tx, commit := s.begin() // Another instance is at it, and dies.
		_, locked, err := d.lockLife(t.Context(), tx, s.orders)
		require.NoError(t, err)
		require.True(t, locked)
		r := s.reconciler()
		done, err := r.renew(bounded(t), d, &s.config.Queues[0], s.life())
		require.NoError(t, err)
		require.False(t, done)
		require.Nil(t, s.find("k", "one"))
		commit()
		done, err = r.renew(bounded(t), d, &s.config.Queues[0], s.life())
		require.NoError(t, err)
		require.True(t, done)
		require.NotNil(t, s.find("k", "one"))
		require.Equal(t, s.life(), s.noted())
	})
}

// One that ends in the middle notes nothing, so that it is done again.
func TestReconcilerIsRepeated(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReconciling(t, d)
		s.stored("one", far)
		s.wipe()
		ctx, cancel := context.WithCancel(t.Context())
		s.config.Queues[0].Redis = spying{s.store.Rows(), func(context.Context, []store.Row) { cancel() }}
		_, err := s.reconciler().renew(ctx, d, &s.config.Queues[0], s.life())
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, s.noted())
		s.config.Queues[0].Redis = s.store.Rows()
		s.eventually("the lock of the one that was broken off is gone, and all is done", func() bool {
			done, err := s.reconciler().renew(bounded(t), d, &s.config.Queues[0], s.life())
			require.NoError(t, err)
			return done
		})
		require.NotNil(t, s.find("k", "one"))
	})
}

// A relay stored a message before the wipe, and its row says so after the
// reconciler has passed.
func TestReconcilerLooksAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReconciling(t, d)
		s.stored("other", far)
		pending := s.stored("pending", 0, func(i *insert) { i.state = statePending; i.dueMs = s.due(soon) })
		operated := s.stored("operated", far)
		op := s.insert(insert{id: "operated", key: "k", verb: verbReschedule, dueMs: s.due(far)})
		s.wipe()
		var passed bool
		s.config.Queues[0].Redis = spying{s.store.Rows(), func(ctx context.Context, rows []store.Row) {
			if passed {
				return
			}
			passed = true
			require.Len(t, rows, 1)
			statement := d.query("").add("UPDATE {t} SET status = 1 WHERE id IN (?, ?)", pending, op)
			_, err := statement.exec(ctx, d.db)
			require.NoError(t, err)
		}}
		done, err := s.reconciler().renew(bounded(t), d, &s.config.Queues[0], s.life())
		require.NoError(t, err)
		require.True(t, done)
		require.NotNil(t, s.find("k", "pending"))
		require.NotNil(t, s.find("k", "operated"))
		require.Equal(t, "stored", s.state(operated))
	})
}

// current reports whether the rows of the queue were reconciled with that life of
// it, as far as this instance knows.
func current(r *Reconciler, queue, life string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.config.Databases {
		if r.lives[lifeOf{d, queue}] != life {
			return false
		}
	}
	return true
}
