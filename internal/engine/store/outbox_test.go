package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// rowToken is the n-th token of a test's rows.
func rowToken(n int) string { return fmt.Sprintf("~%015d", n) }

var (
	rowDue   = time.UnixMilli(past().Ms)
	farAhead = time.Now().Add(never).Truncate(time.Millisecond)
)

// outboxScene is a queue with a ledger, and one row, "x".
type outboxScene struct {
	testing.TB
	rdb    *redis.Client
	q      *store.Queue
	b      *bridge
	told   int
	row, t string // the row's id and token
}

func newOutboxScene(t testing.TB) *outboxScene {
	t.Helper()
	s := &outboxScene{TB: t, rdb: shared(t), row: "x", t: rowToken(1)}
	s.q = storetest.New(t, s.rdb, 1).WithLedger(func(int) { s.told++ })
	s.b = newBridge(t, s.q)
	return s
}

func (s *outboxScene) putAs(token string, due time.Time) store.Answer {
	s.Helper()
	answer := s.q.Rows().Put(s.Context(), []store.Row{{Token: token, Message: note(s.row, "the row's"), DueAt: due}})[0]
	require.NoError(s, answer.Err)
	return answer
}

// puts brings the row to Redis, due already, and says what was answered.
func (s *outboxScene) puts(want store.Code) {
	s.Helper()
	require.Equal(s, want, s.putAs(s.t, rowDue).Code)
}

func (s *outboxScene) cancelRow(token, target string) store.Code {
	s.Helper()
	answer := s.q.Rows().CancelRow(s.Context(), store.Operation{ID: s.row, Token: token, Target: target})
	require.NoError(s, answer.Err)
	return answer.Code
}

func (s *outboxScene) rescheduleRow(token, target string, due time.Time) store.Code {
	s.Helper()
	answer := s.q.Rows().RescheduleRow(s.Context(), store.Operation{ID: s.row, Token: token, Target: target}, due)
	require.NoError(s, answer.Err)
	if answer.Code == store.Done || answer.Code == store.DoneMaybePublished {
		require.Equal(s, due.UnixMilli(), answer.DueAt.UnixMilli())
	}
	return answer.Code
}

// ledger is what rows are to be told, and forgets it.
func (s *outboxScene) ledger() map[string]store.RowFate {
	s.Helper()
	rows, err := s.q.Rows().Settled(s.Context(), 0, 100)
	require.NoError(s, err)
	told := map[string]store.RowFate{}
	for _, row := range rows {
		require.Equal(s, s.row, row.ID)
		told[row.Token] = row
	}
	require.NoError(s, s.q.Rows().ForgetFates(s.Context(), 0, rows))
	require.Empty(s, sound(s, s.rdb, s.q).Settled)
	return told
}

// forgotten removes what 60 seconds remove.
func (s *outboxScene) forgotten() {
	s.Helper()
	require.NoError(s, s.rdb.Del(s.Context(), storetest.Key(s.q.Name(), 0, "gone"), storetest.Key(s.q.Name(), 0, "gonettl")).Err())
}

func outboxCases(t *testing.T, list map[string]func(*outboxScene)) {
	t.Helper()
	for name, run := range list {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newOutboxScene(t)
			run(s)
			after := sound(t, s.rdb, s.q)
			now, err := redisNow(t.Context(), s.rdb)
			require.NoError(t, err)
			for token, expiry := range after.GoneTTL {
				require.InDelta(t, now+60_000, expiry, 55_000, "tombstone of %s", token)
				require.LessOrEqual(t, expiry, now+60_000)
			}
		})
	}
}

// TestPut brings a row to Redis again while its message is there.
func TestPut(t *testing.T) {
	t.Parallel()
	outboxCases(t, map[string]func(*outboxScene){
		"waiting": func(s *outboxScene) {
			answer := s.putAs(s.t, farAhead)
			require.Equal(s, store.Created, answer.Code)
			require.Equal(s, farAhead.UnixMilli(), answer.DueAt.UnixMilli())
			answer = s.putAs(s.t, rowDue)
			require.Equal(s, store.Mine, answer.Code)
			require.Equal(s, farAhead.UnixMilli(), answer.DueAt.UnixMilli(), "as it is")
			after := sound(s, s.rdb, s.q)
			require.EqualValues(s, 1, after.Counter("scheduled"))
			require.Empty(s, after.Attempts)
		},
		"rounded up": func(s *outboxScene) {
			answer := s.putAs(s.t, farAhead.Add(time.Microsecond))
			require.Equal(s, farAhead.UnixMilli()+1, answer.DueAt.UnixMilli())
		},
		"in flight": func(s *outboxScene) {
			s.puts(store.Created)
			require.Len(s, s.b.claim(10).Messages, 1)
			s.puts(store.Mine)
		},
		"dead because its body was lost": func(s *outboxScene) {
			s.puts(store.Created)
			require.NoError(s, s.rdb.HDel(s.Context(), storetest.Key(s.q.Name(), 0, "msg"), s.row).Err())
			s.b.finish(buried)
			require.Len(s, sound(s, s.rdb, s.q).Dead, 1)
			answered(s, store.Absent, s.q.Rows().Peek(s.Context(), []store.Row{{Token: s.t, Message: note(s.row, "")}})[0])
			require.Equal(s, store.Created, s.putAs(s.t, farAhead).Code)
			after := sound(s, s.rdb, s.q)
			require.Empty(s, after.Dead)
			require.Equal(s, "0 1 1 0", after.Attempts[s.row], "a copy may be out")
			require.EqualValues(s, 1, after.Counter("replaced"))
			s.puts(store.Mine)
		},
		"dead, and redriven": func(s *outboxScene) {
			s.puts(store.Created)
			s.b.finish(buried)
			s.puts(store.Mine)
			codes, err := inspect.NewAdmin(s.q).Redrive(s.Context(), []string{s.row})
			require.NoError(s, err)
			require.Equal(s, []store.Code{store.Done}, codes)
			s.puts(store.Mine)
			s.b.finish(acked)
			s.puts(store.EndedPublished)
			require.Len(s, s.ledger(), 1)
		},
		"marked": func(s *outboxScene) {
			row := store.Row{Token: s.t, Message: note(s.row, ""), DueAt: farAhead, Mark: store.MarkAlways}
			answered(s, store.Created, s.q.Rows().Put(s.Context(), []store.Row{row})[0])
			require.Equal(s, markedOnce, sound(s, s.rdb, s.q).Attempts[s.row])
			require.Equal(s, store.DoneMaybePublished, s.cancelRow(rowToken(2), s.t))
		},
		"another's in the way": func(s *outboxScene) {
			create(s, s.q, s.row, past())
			answer := s.putAs(s.t, rowDue)
			require.Equal(s, store.Waiting, answer.Code)
			require.Equal(s, past().Ms, answer.DueAt.UnixMilli())
			claim := s.b.claim(1)
			s.puts(store.InFlight)
			s.b.settle(claim, buried)
			answer = s.putAs(s.t, rowDue)
			require.Equal(s, store.Dead, answer.Code)
			require.Equal(s, buried.Reason, answer.Reason)
			require.Equal(s, store.Done, cancel(s, s.q, s.row))
			s.puts(store.Created)
		},
		"a batch": func(s *outboxScene) {
			var rows []store.Row
			for n := range 2*store.MaxBatch + 1 {
				rows = append(rows, store.Row{Token: rowToken(n), Message: note(fmt.Sprint(n), "b"), DueAt: rowDue})
			}
			rows[7].Message = rows[6].Message
			rows[9] = rows[8]
			rows[10].Token = "0123456789abcdef"
			for n, answer := range s.q.Rows().Put(s.Context(), rows) {
				switch n {
				case 7:
					answered(s, store.Waiting, answer)
				case 9:
					answered(s, store.Mine, answer)
				case 10:
					require.ErrorContains(s, answer.Err, "token of an outbox message")
				default:
					answered(s, store.Created, answer)
				}
			}
			require.EqualValues(s, len(rows)-3, sound(s, s.rdb, s.q).Counter("scheduled"))
			for left := len(rows) - 3; left > 0; {
				claim := s.b.claim(store.MaxBatch)
				s.b.settle(claim, acked)
				left -= len(claim.Messages)
			}
			for n, answer := range s.q.Rows().Put(s.Context(), rows[11:]) {
				require.Equal(s, store.EndedPublished, answer.Code, n)
			}
			require.Len(s, dump(s, s.rdb, s.q).Settled, len(rows)-3)
		},
	})
}

// TestPutAfterItsEnd brings a row to Redis again after its message has ended: a
// late writer must not bring it back.
func TestPutAfterItsEnd(t *testing.T) {
	t.Parallel()
	outboxCases(t, map[string]func(*outboxScene){
		"published": func(s *outboxScene) {
			s.puts(store.Created)
			s.b.finish(acked)
			require.Equal(s, 1, s.told)
			s.puts(store.EndedPublished)
			s.forgotten()
			s.puts(store.EndedPublished) // The ledger knows.
			told := s.ledger()
			require.Equal(s, store.FatePublished, told[s.t].What)
			s.puts(store.EndedPublished) // What was forgotten left a tombstone.
			s.forgotten()
			s.puts(store.Created) // Nobody knows any more.
		},
		"published among others": func(s *outboxScene) {
			s.puts(store.Created)
			create(s, s.q, "plain", past())
			other := store.Row{Token: "~~" + rowToken(3)[2:], Message: note("sdk's", ""), DueAt: rowDue}
			answered(s, store.Created, s.q.Rows().Put(s.Context(), []store.Row{other})[0])
			s.b.settle(s.b.claim(10), acked)
			require.Equal(s, map[string]string{other.Token: "p"}, sound(s, s.rdb, s.q).Gone, "the ledger keeps the row's out")
			s.puts(store.EndedPublished)
			answered(s, store.EndedPublished, s.q.Rows().Put(s.Context(), []store.Row{other})[0])
			require.Len(s, s.ledger(), 1, "only the row's")
		},
		"retried, released, then published": func(s *outboxScene) {
			s.puts(store.Created)
			s.b.finish(released)
			require.Empty(s, sound(s, s.rdb, s.q).Gone)
			s.puts(store.Mine)
			s.b.finish(acked)
			s.puts(store.EndedPublished)
		},
		"cancelled by the SDK": func(s *outboxScene) {
			s.puts(store.Created)
			require.Equal(s, store.Done, cancel(s, s.q, s.row))
			s.puts(store.EndedCancelled)
			s.forgotten()
			s.puts(store.EndedCancelled)
			require.Equal(s, store.FateCancelled, s.ledger()[s.t].What)
		},
		"a copy may be out, then cancelled by the SDK": func(s *outboxScene) {
			s.puts(store.Created)
			s.b.finish(unknown)
			require.Equal(s, store.DoneMaybePublished, cancel(s, s.q, s.row))
			s.puts(store.EndedMaybe)
			require.Equal(s, store.EndedMaybe, s.rescheduleRow(rowToken(7), s.t, rowDue))
			require.Equal(s, store.EndedMaybe, s.cancelRow(rowToken(8), s.t))
			s.forgotten()
			s.puts(store.EndedMaybe)
			told := s.ledger()[s.t]
			require.Equal(s, []any{store.FateCancelled, true, s.row}, []any{told.What, told.Maybe, told.ID})
		},
		"replaced": func(s *outboxScene) {
			s.puts(store.Created)
			answered(s, store.Replaced, s.q.Producer().Schedule(s.Context(), requests(past(), s.row), true, store.Durability{})[0])
			s.puts(store.EndedCancelled)
			s.b.finish(acked)
			s.puts(store.EndedCancelled)
			require.Equal(s, store.FateCancelled, s.ledger()[s.t].What)
		},
		"dropped": func(s *outboxScene) {
			s.puts(store.Created)
			s.b.finish(dropped)
			s.puts(store.EndedCancelled)
			require.Equal(s, store.FateCancelled, s.ledger()[s.t].What)
		},
		"purged": func(s *outboxScene) {
			s.puts(store.Created)
			s.b.finish(buried)
			codes, err := inspect.NewAdmin(s.q).Purge(s.Context(), []string{s.row, "nobody"})
			require.NoError(s, err)
			require.Equal(s, []store.Code{store.Done, store.NotFound}, codes)
			s.puts(store.EndedCancelled)
			require.Equal(s, store.FateCancelled, s.ledger()[s.t].What)
		},
		"dead, and replaced": func(s *outboxScene) {
			s.puts(store.Created)
			s.b.finish(buried)
			answered(s, store.Replaced, s.q.Producer().Schedule(s.Context(), requests(later(), s.row), true, store.Durability{})[0])
			s.puts(store.EndedCancelled)
		},
		"rescheduled by the SDK": func(s *outboxScene) {
			s.puts(store.Created)
			require.Equal(s, store.Done, reschedule(s, s.q, s.row, store.When{Ms: farAhead.UnixMilli()}))
			require.Equal(s, farAhead.UnixMilli(), s.putAs(s.t, rowDue).DueAt.UnixMilli())
			s.puts(store.Mine)
			rows, err := s.q.Rows().Settled(s.Context(), 0, 100)
			require.NoError(s, err)
			require.Equal(s, store.FateMoved, rows[0].What)
			require.Equal(s, farAhead.UnixMilli(), rows[0].DueAt.UnixMilli())
			require.Equal(s, store.Done, reschedule(s, s.q, s.row, past()))
			s.b.finish(acked)
			require.NoError(s, s.q.Rows().ForgetFates(s.Context(), 0, rows), "it has changed since")
			s.puts(store.EndedPublished)
			require.Equal(s, store.FatePublished, s.ledger()[s.t].What)
		},
		"nobody's ledger": func(s *outboxScene) {
			plain := store.New(s.rdb, storetest.Prefix, s.q.Name())
			_, err := plain.LoadLayout(s.Context())
			require.NoError(s, err)
			s.puts(store.Created)
			claim := s.b.claim(1)
			_, err = plain.Shard(0).Settle(s.Context(), settlement(claim, acked))
			require.NoError(s, err)
			s.puts(store.EndedPublished)
			require.Empty(s, s.ledger())
			require.Zero(s, s.told)
		},
	})
}
