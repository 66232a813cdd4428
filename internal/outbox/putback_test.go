package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOperationsAfterAWipe: a cancel or reschedule that comes before its message
// is put back is told the truth, and has its effect.
func TestOperationsAfterAWipe(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		for name, meanwhile := range map[string]bool{"before": false, "just as the operation comes": true} {
			t.Run(name, func(t *testing.T) {
				s := newReconciling(t, d)
				done, err := s.reconciler().renew(bounded(t), d, &s.config.Queues[0], s.life())
				require.NoError(t, err)
				require.True(t, done)
				waits, overdue, moved := s.stored("waits", far), s.stored("overdue", past), s.stored("moved", far)
				for _, id := range []string{"waits", "overdue", "moved"} {
					require.NotNil(t, s.find("k", id))
				}
				cancel := s.insert(insert{id: "waits", key: "k", verb: verbCancel})
				late := s.insert(insert{id: "overdue", key: "k", verb: verbCancel})
				move := s.insert(insert{id: "moved", key: "k", verb: verbReschedule, dueMs: s.due(soon)})
				if meanwhile {
					s.scene.config.Queues[0].Store = &overtaker{Store: s.store.Rows(), push: s.wipe}
				} else {
					s.wipe()
				}
				s.start(untilPublished)
				s.requireState(cancel, stateCancelled)
				s.requireState(waits, stateCancelled)
				s.requireState(late, stateUnknown)
				s.requireState(overdue, stateCancelled)
				s.requireState(move, stateStored)
				s.requireState(moved, stateStored)
				found := s.find("k", "moved")
				require.NotNil(t, found)
				require.Less(t, found.DueAt.UnixMilli(), time.Now().Add(far).UnixMilli())
				require.Nil(t, s.find("k", "waits"))

				done, err = s.reconciler().renew(bounded(t), d, &s.config.Queues[0], s.life())
				require.NoError(t, err)
				require.True(t, done)
				require.Nil(t, s.find("k", "waits"), "it stays cancelled")
				require.Nil(t, s.find("k", "overdue"))
			})
		}
	})
}

// TestPublishedAfterAWipe: what is published between its being put back and the
// operation is told so at once.
func TestPublishedAfterAWipe(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		for name, v := range map[string]verb{"cancel": verbCancel, "reschedule": verbReschedule} {
			t.Run(name, func(t *testing.T) {
				s := newReconciling(t, d)
				done, err := s.reconciler().renew(bounded(t), d, &s.config.Queues[0], s.life())
				require.NoError(t, err)
				require.True(t, done)
				overdue := s.stored("overdue", past)
				i := insert{id: "overdue", key: "k", verb: v}
				if v == verbReschedule {
					i.dueMs = s.due(far)
				}
				op := s.insert(i)
				s.wipe()
				s.scene.config.Queues[0].Store = &saboteur{Store: s.store.Rows(), after: func() { s.ack(s.take()) }}
				s.start(untilPublished)
				s.requireState(op, stateTooLate)
				s.requireState(overdue, statePublished)
				require.Equal(t, int64(1), s.scheduled(), "put back once")
			})
		}
	})
}
