package outbox

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/store"
)

// TestOperationsAgain: where a transaction's end failed after Redis had answered,
// all is done again, and the answers are the same: a message that nobody had
// brought to Redis was rescheduled, rescheduled again, and cancelled.
func TestOperationsAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		for name, adjust := range map[string]func(*Config){"stored": func(*Config) {}, "published": untilPublished} {
			t.Run(name, func(t *testing.T) {
				s := newReal(t, d)
				a := s.insert(insert{id: "a", dueMs: s.due(far)})
				first := s.insert(insert{id: "a", verb: verbReschedule, dueMs: s.due(soon)})
				second := s.insert(insert{id: "a", verb: verbReschedule, dueMs: s.due(2 * soon)})
				cancel := s.insert(insert{id: "a", verb: verbCancel})
				// A cancel with nothing but the message before it.
				b := s.insert(insert{id: "b", dueMs: s.due(far)})
				only := s.insert(insert{id: "b", verb: verbReschedule, dueMs: s.due(soon)})
				token := func(number int64) string {
					r, _ := s.read(number)
					return r.token
				}
				ctx, soon := t.Context(), time.UnixMilli(s.due(soon))
				require.NoError(t, s.store.Rows().RescheduleRow(ctx, store.Operation{ID: "a", Token: token(first), Target: token(a)}, soon).Err)
				require.NoError(t, s.store.Rows().RescheduleRow(ctx, store.Operation{ID: "a", Token: token(second), Target: token(first)}, soon).Err)
				require.NoError(t, s.store.Rows().CancelRow(ctx, store.Operation{ID: "a", Token: token(cancel), Target: token(second)}).Err)
				require.NoError(t, s.store.Rows().RescheduleRow(ctx, store.Operation{ID: "b", Token: token(only), Target: token(b)}, soon).Err)

				s.start(adjust)
				s.requireState(first, stateStored)
				s.requireState(second, stateStored)
				s.requireState(cancel, stateCancelled)
				s.requireState(a, stateCancelled)
				s.requireState(only, stateStored)
				s.eventually("the other is loaded", func() bool { return s.find("", "b") != nil })
				require.Nil(t, s.find("", "a"))
			})
		}
	})
}

// overtaker does something to Redis just before the first operation goes there,
// when the relay has read the table already.
type overtaker struct {
	Store
	once sync.Once
	push func()
}

func (o *overtaker) CancelRow(ctx context.Context, op store.Operation) store.Answer {
	o.once.Do(o.push)
	return o.Store.CancelRow(ctx, op)
}

func (o *overtaker) RescheduleRow(ctx context.Context, op store.Operation, due time.Time) store.Answer {
	o.once.Do(o.push)
	return o.Store.RescheduleRow(ctx, op, due)
}

// TestLaterMessage: an operation does not hit a message that was committed after
// it, even where its producer has pushed that while the relay was on its way.
func TestLaterMessage(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		for name, adjust := range map[string]func(*Config){"stored": func(*Config) {}, "published": untilPublished} {
			for _, v := range []verb{verbCancel, verbReschedule} {
				t.Run(name+" "+v.String(), func(t *testing.T) {
					s := newReal(t, d)
					var number int64
					s.config.Queues[0].Store = &overtaker{Store: s.store.Rows(), push: func() {
						number = s.insert(insert{id: "a", dueMs: s.due(soon), tried: true})
						require.Equal(t, store.Created, s.put(number).Code)
					}}
					i := insert{id: "a", verb: v}
					if v == verbReschedule {
						i.dueMs = s.due(far)
					}
					op := s.insert(i)
					s.start(adjust)
					s.eventually("the operation is over", func() bool { r, _ := s.read(op); return r.state != statePending })
					r, reason := s.read(op)
					require.Contains(t, []state{stateSuperseded, stateUnknown}, r.state, reason)
					found := s.find("", "a")
					require.NotNil(t, found)
					require.Less(t, found.DueAt.UnixMilli(), s.due(2*soon))
					if name == "published" {
						s.requireState(number, stateStored)
					} else {
						s.requireGone(number)
					}
					require.Equal(t, int64(1), s.scheduled())
				})
			}
		}
	})
}
