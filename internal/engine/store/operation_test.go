package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// TestCancelRow cancels by a row, again and again, and lets a late writer come.
func TestCancelRow(t *testing.T) {
	t.Parallel()
	op := rowToken(2)
	outboxCases(t, map[string]func(*outboxScene){
		"waiting": func(s *outboxScene) {
			s.puts(store.Created)
			require.Equal(s, store.Done, s.cancelRow(op, s.t))
			require.Equal(s, store.Done, s.cancelRow(op, s.t), "again")
			s.puts(store.EndedCancelled)
			require.Empty(s, s.ledger(), "the row knows")
		},
		"not there": func(s *outboxScene) {
			require.Equal(s, store.NotFound, s.cancelRow(op, s.t))
			s.puts(store.EndedCancelled)
			require.Empty(s, sound(s, s.rdb, s.q).Msg, "the late writer brings nothing")
			require.Equal(s, store.NotFound, s.cancelRow(op, s.t), "again")
		},
		"in flight": func(s *outboxScene) {
			s.puts(store.Created)
			claim := s.b.claim(1)
			require.Equal(s, store.InFlight, s.cancelRow(op, s.t))
			require.Empty(s, sound(s, s.rdb, s.q).Gone, "nothing has ended")
			s.b.settle(claim, acked)
			require.Equal(s, store.EndedPublished, s.cancelRow(op, s.t))
			s.forgotten()
			require.Equal(s, store.EndedPublished, s.cancelRow(op, s.t), "by the ledger")
		},
		"maybe published": func(s *outboxScene) {
			s.puts(store.Created)
			s.b.finish(unknown)
			require.Equal(s, store.DoneMaybePublished, s.cancelRow(op, s.t))
			require.Equal(s, store.DoneMaybePublished, s.cancelRow(op, s.t))
		},
		"dead": func(s *outboxScene) {
			s.puts(store.Created)
			s.b.finish(buried)
			require.Equal(s, store.Done, s.cancelRow(op, s.t))
			s.puts(store.EndedCancelled)
		},
		"cancelled by the SDK": func(s *outboxScene) {
			s.puts(store.Created)
			require.Equal(s, store.Done, cancel(s, s.q, s.row))
			require.Equal(s, store.EndedCancelled, s.cancelRow(op, s.t))
		},
		"another's": func(s *outboxScene) {
			create(s, s.q, s.row, later())
			before := sound(s, s.rdb, s.q)
			require.Equal(s, store.NotFound, s.cancelRow(op, s.t))
			require.Equal(s, before.Msg, sound(s, s.rdb, s.q).Msg, "it is left alone")
			require.Equal(s, store.Done, cancel(s, s.q, s.row))
			s.puts(store.EndedCancelled)
		},
		"another's, dead": func(s *outboxScene) {
			create(s, s.q, s.row, past())
			s.b.finish(buried)
			require.Equal(s, store.NotFound, s.cancelRow(op, s.t))
			require.Len(s, sound(s, s.rdb, s.q).DeadMsg, 1, "it is left alone")
		},
		"rescheduled by a row before": func(s *outboxScene) {
			s.puts(store.Created)
			require.Equal(s, store.Done, s.rescheduleRow(op, s.t, farAhead))
			require.Equal(s, store.Done, s.cancelRow(rowToken(3), op))
			s.puts(store.EndedCancelled)
			require.Equal(s, store.EndedCancelled, s.putAs(op, rowDue).Code)
		},
		"rescheduled by a row after it": func(s *outboxScene) { // Whose transaction was lost.
			s.puts(store.Created)
			at := s.t
			for n := range 3 {
				require.Equal(s, store.Done, s.rescheduleRow(rowToken(10+n), at, farAhead))
				at = rowToken(10 + n)
				require.Equal(s, store.EndedMoved, s.cancelRow(op, s.t))
			}
			require.Len(s, sound(s, s.rdb, s.q).Msg, 1)
		},
	})
}

// TestRescheduleRow reschedules by a row; a late writer comes under the old token.
func TestRescheduleRow(t *testing.T) {
	t.Parallel()
	next, after := rowToken(2), rowToken(3)
	outboxCases(t, map[string]func(*outboxScene){
		"waiting": func(s *outboxScene) {
			s.puts(store.Created)
			require.Equal(s, store.Done, s.rescheduleRow(next, s.t, farAhead))
			require.Equal(s, store.Done, s.rescheduleRow(next, s.t, farAhead), "again")
			s.forgotten()
			require.Equal(s, store.Done, s.rescheduleRow(next, s.t, farAhead), "and later")
			require.Equal(s, store.Mine, s.putAs(next, rowDue).Code)
			require.EqualValues(s, 1, sound(s, s.rdb, s.q).Counter("rescheduled"), "one effect")
			require.Empty(s, s.ledger())
		},
		"late writer": func(s *outboxScene) {
			s.puts(store.Created)
			require.Equal(s, store.Done, s.rescheduleRow(next, s.t, farAhead))
			answer := s.putAs(s.t, rowDue)
			require.Equal(s, store.Mine, answer.Code)
			require.Equal(s, farAhead.UnixMilli(), answer.DueAt.UnixMilli())
		},
		"late writer, in flight": func(s *outboxScene) {
			s.puts(store.Created)
			require.Equal(s, store.Done, s.rescheduleRow(next, s.t, rowDue))
			s.b.claim(1)
			s.puts(store.Mine)
			require.Equal(s, store.Done, s.rescheduleRow(next, s.t, rowDue), "it was done before")
			require.Equal(s, store.InFlight, s.rescheduleRow(after, next, rowDue))
		},
		"late writer, published": func(s *outboxScene) {
			s.puts(store.Created)
			require.Equal(s, store.Done, s.rescheduleRow(next, s.t, farAhead))
			require.Equal(s, store.Done, s.rescheduleRow(after, next, rowDue))
			s.b.finish(acked)
			s.puts(store.EndedPublished)
			require.Equal(s, store.EndedPublished, s.putAs(next, rowDue).Code)
			require.Equal(s, store.EndedPublished, s.putAs(after, rowDue).Code)
			require.Equal(s, store.Done, s.rescheduleRow(after, next, rowDue), "what it had answered")
			require.Equal(s, store.EndedPublished, s.rescheduleRow(rowToken(4), after, rowDue))
			s.forgotten()
			require.Equal(s, store.DoneMaybePublished, s.rescheduleRow(after, next, rowDue), "its token was in force, says the ledger, and not whether a copy was out before")
			told := s.ledger()
			require.Len(s, told, 1)
			require.Equal(s, store.FatePublished, told[after].What)
		},
		"not there": func(s *outboxScene) {
			require.Equal(s, store.NotFound, s.rescheduleRow(next, s.t, rowDue))
			s.puts(store.EndedMoved)
			require.Equal(s, store.NotFound, s.rescheduleRow(next, s.t, rowDue), "again")
			require.Equal(s, store.Created, s.putAs(next, rowDue).Code)
			s.puts(store.Mine)
			s.b.finish(acked)
			s.puts(store.EndedPublished)
		},
		"not there, and cancelled": func(s *outboxScene) {
			require.Equal(s, store.NotFound, s.rescheduleRow(next, s.t, rowDue))
			require.Equal(s, store.NotFound, s.cancelRow(after, next))
			s.puts(store.EndedCancelled)
			require.Equal(s, store.EndedCancelled, s.putAs(next, rowDue).Code)
		},
		"published": func(s *outboxScene) {
			s.puts(store.Created)
			s.b.finish(acked)
			require.Equal(s, store.EndedPublished, s.rescheduleRow(next, s.t, rowDue))
			s.puts(store.EndedPublished)
		},
		"cancelled by the SDK": func(s *outboxScene) {
			s.puts(store.Created)
			require.Equal(s, store.Done, cancel(s, s.q, s.row))
			require.Equal(s, store.EndedCancelled, s.rescheduleRow(next, s.t, rowDue))
		},
		"maybe published": func(s *outboxScene) {
			s.puts(store.Created)
			s.b.finish(unknown)
			require.Equal(s, store.DoneMaybePublished, s.rescheduleRow(next, s.t, farAhead))
			require.Equal(s, store.DoneMaybePublished, s.rescheduleRow(next, s.t, farAhead))
			require.Equal(s, store.DoneMaybePublished, s.cancelRow(after, next))
			require.Equal(s, store.DoneMaybePublished, s.rescheduleRow(next, s.t, farAhead), "again, after its end")
		},
		"maybe published, and once more since": func(s *outboxScene) {
			s.puts(store.Created)
			s.b.finish(unknown)
			require.Equal(s, store.DoneMaybePublished, s.rescheduleRow(next, s.t, rowDue))
			s.b.finish(acked)
			s.forgotten()
			require.Equal(s, store.DoneMaybePublished, s.rescheduleRow(next, s.t, rowDue), "the first copy was out before")
		},
		"cancelled since": func(s *outboxScene) {
			s.puts(store.Created)
			require.Equal(s, store.Done, s.rescheduleRow(next, s.t, farAhead))
			require.Equal(s, store.Done, cancel(s, s.q, s.row))
			s.forgotten()
			require.Equal(s, store.Done, s.rescheduleRow(next, s.t, farAhead), "no copy was out, says the ledger")
		},
		"dead": func(s *outboxScene) {
			s.puts(store.Created)
			s.b.finish(buried)
			require.Equal(s, store.Done, s.rescheduleRow(next, s.t, rowDue))
			s.puts(store.Mine)
			s.b.finish(acked)
			s.puts(store.EndedPublished)
		},
		"another's": func(s *outboxScene) {
			create(s, s.q, s.row, later())
			before := sound(s, s.rdb, s.q)
			require.Equal(s, store.NotFound, s.rescheduleRow(next, s.t, rowDue))
			require.Equal(s, before.Msg, sound(s, s.rdb, s.q).Msg, "it is left alone")
			require.Equal(s, store.Done, cancel(s, s.q, s.row))
			s.puts(store.EndedMoved)
			require.Equal(s, store.Created, s.putAs(next, rowDue).Code)
		},
		"many times": func(s *outboxScene) {
			s.puts(store.Created)
			at := s.t
			for n := range 12 {
				token := rowToken(10 + n)
				require.Equal(s, store.Done, s.rescheduleRow(token, at, farAhead))
				at = token
			}
			s.puts(store.EndedMoved)
			require.Equal(s, store.Mine, s.putAs(rowToken(15), rowDue).Code)
			require.Equal(s, store.Done, s.rescheduleRow(rowToken(99), at, rowDue))
			s.b.finish(acked)
			s.puts(store.EndedMoved)
			require.Equal(s, store.EndedPublished, s.putAs(at, rowDue).Code)
		},
		"no row's token": func(s *outboxScene) {
			answer := s.q.Rows().RescheduleRow(s.Context(), store.Operation{ID: s.row, Token: "0123456789abcdef", Target: s.t}, rowDue)
			require.ErrorContains(s, answer.Err, "token of an outbox message")
			answer = s.q.Rows().CancelRow(s.Context(), store.Operation{ID: s.row, Token: next, Target: "~short"})
			require.ErrorContains(s, answer.Err, "token of an outbox message")
		},
	})
}
