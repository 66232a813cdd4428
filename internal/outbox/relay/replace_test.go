package relay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestReplace goes through where a message may be when another one takes its place.
func TestReplace(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		for name, test := range map[string]func(*realScene){
			"it waits":                    replaceWaiting,
			"beyond the horizon":          replaceFar,
			"in flight, then published":   replaceInFlight,
			"in flight, then released":    replaceReleased,
			"a dead letter":               replaceDead,
			"published":                   replacePublished,
			"gone":                        replaceGone,
			"after its cancel":            replaceCancelled,
			"another one came first":      replaceOther,
			"several":                     replaceSeveral,
			"a new one that is not valid": replaceUnfit,
			"a large one":                 replaceLarge,
			"scheduled in between":        replaceBetween,
			"the relay dies":              replaceDying,
		} {
			t.Run(name, func(t *testing.T) {
				s := newReal(t, d)
				test(s)
				s.Sound()
			})
		}
	})
}

// replacement writes a replace of whatever lives.
func (s *realScene) replacement(adjust ...func(*insert)) int64 {
	i := insert{ID: "a", Key: "k", Verb: table.VerbReplace, Topic: "topic", Body: "new", DueMs: s.Due(soon)}
	for _, f := range adjust {
		f(&i)
	}
	if i.Target == 0 {
		number := s.Insert(i)
		s.DB.Exec(s.t, "UPDATE {t} SET target = NULL WHERE id = ?", number)
		return number
	}
	return s.Insert(i)
}

// requireNew requires that Redis has the message of that row, and no other.
func (s *realScene) requireNew(number int64) {
	s.t.Helper()
	s.RequireStored(number)
	row, _ := s.Read(number)
	require.Equal(s.t, table.VerbSchedule, row.Verb)
	require.False(s.t, row.Target.Valid)
	found := s.Find("k", "a")
	require.NotNil(s.t, found)
	require.Equal(s.t, row.Token, found.Message.Token)
	require.Equal(s.t, string(row.Content.Body), string(found.Message.Body))
}

func replaceWaiting(s *realScene) {
	old := s.Stored("a", soon)
	number := s.replacement()
	s.start()
	s.requireNew(number)
	require.Equal(s.t, "cancelled", s.State(old))
	_, reason := s.Read(old)
	require.Empty(s.t, reason)
}

func replaceFar(s *realScene) {
	old := s.Insert(insert{ID: "a", Key: "k", DueMs: s.Due(far)})
	number := s.replacement(func(i *insert) { i.DueMs = s.Due(far) })
	s.start()
	s.RequireState(old, table.StateCancelled)
	require.Equal(s.t, 1, s.Count("op = 0 AND status = 0"))
	require.Equal(s.t, "pending", s.State(number))
	require.Nil(s.t, s.Find("k", "a"))
}

func replaceInFlight(s *realScene) {
	old := s.Stored("a", past)
	claims := s.Take()
	number := s.replacement()
	other := s.Insert(insert{ID: "other", Verb: table.VerbCancel})
	relay, _ := s.start()
	s.Eventually("it is blocked", func() bool { return relay.blocked.count() == 1 })
	s.RequireState(other, table.StateUnknown)
	require.Equal(s.t, "stored", s.State(old))
	s.Ack(claims)
	s.requireNew(number)
	require.Equal(s.t, "published", s.State(old))
}

func replaceReleased(s *realScene) {
	old := s.Stored("a", past)
	claims := s.Take()
	number := s.replacement()
	relay, _ := s.start()
	s.Eventually("it is blocked", func() bool { return relay.blocked.count() == 1 })
	for shard, claim := range claims {
		if len(claim.Messages) > 0 {
			_, err := s.Store.Shard(shard).Settle(s.t.Context(), message.Settlement{Claim: claim, Verdicts: []message.Verdict{{Verb: message.VerbRelease, Attempts: message.Attempts{Begun: 1, MaybeOut: 1}}}})
			require.NoError(s.t, err)
		}
	}
	s.requireNew(number)
	row, reason := s.Read(old)
	require.Equal(s.t, table.StateCancelled, row.State)
	require.NotEmpty(s.t, reason, "a copy may be out")
}

func replaceDead(s *realScene) {
	old := s.Stored("a", past)
	for shard, claim := range s.Take() {
		if len(claim.Messages) > 0 {
			_, err := s.Store.Shard(shard).Settle(s.t.Context(), message.Settlement{Claim: claim, Verdicts: []message.Verdict{{Verb: message.VerbDeadLetter, Reason: "broken"}}})
			require.NoError(s.t, err)
		}
	}
	number := s.replacement()
	s.start()
	s.requireNew(number)
	require.Equal(s.t, "cancelled", s.State(old))
}

func replacePublished(s *realScene) {
	old := s.Stored("a", past)
	s.Publish()
	number := s.replacement()
	s.start()
	s.requireNew(number)
	require.Equal(s.t, "published", s.State(old))
}

func replaceGone(s *realScene) {
	number := s.replacement()
	s.start()
	s.requireNew(number)
}

func replaceCancelled(s *realScene) {
	old := s.Stored("a", soon)
	cancel := s.Insert(insert{ID: "a", Key: "k", Verb: table.VerbCancel})
	number := s.replacement(func(i *insert) { i.Target = old })
	s.start()
	s.RequireState(cancel, table.StateCancelled)
	s.requireNew(number)
}

func replaceOther(s *realScene) {
	old := s.Stored("a", soon)
	s.Insert(insert{ID: "a", Key: "k", Verb: table.VerbCancel})
	first := s.replacement(func(i *insert) { i.Target = old })
	second := s.replacement(func(i *insert) { i.Target = old })
	s.start()
	s.requireNew(first)
	require.Equal(s.t, reasonTaken, s.RequireState(second, table.StateRefused))
}

func replaceSeveral(s *realScene) {
	s.Stored("a", soon)
	first, second := s.replacement(), s.replacement()
	cancel := s.Insert(insert{ID: "a", Key: "k", Verb: table.VerbCancel, Target: second})
	third := s.replacement(func(i *insert) { i.Target = second })
	s.start()
	s.requireNew(third)
	require.Equal(s.t, "cancelled", s.State(first))
	require.Equal(s.t, "cancelled", s.State(second))
	require.Equal(s.t, "cancelled", s.State(cancel))
}

func replaceUnfit(s *realScene) {
	old := s.Stored("a", soon)
	number := s.replacement(func(i *insert) { i.Topic = "no topic of NATS \n" })
	s.start()
	s.RequireState(number, table.StateRefused)
	require.Equal(s.t, "stored", s.State(old))
	require.NotNil(s.t, s.Find("k", "a"))
}

func replaceLarge(s *realScene) {
	s.Stored("a", soon)
	number := s.replacement(func(i *insert) { i.Body = strings.Repeat("x", 100_000) })
	s.start()
	s.requireNew(number)
}

// replaceBetween has an id that another transaction schedules while the replace is not yet
// committed, and which commits only later.
func replaceBetween(s *realScene) {
	number := s.replacement()
	tx, commit := s.Begin()
	between := s.InsertInto(tx, insert{ID: "a", Key: "k", DueMs: s.Due(soon)})
	other := s.Insert(insert{ID: "other", Verb: table.VerbCancel})
	relay, _ := s.start()
	s.Eventually("it is blocked", func() bool { return relay.blocked.count() == 1 })
	s.RequireState(other, table.StateUnknown)
	commit()
	s.requireNew(number)
	require.Equal(s.t, "cancelled", s.State(between))
}

// replaceDying has a relay that dies when Redis has done its part.
func replaceDying(s *realScene) {
	old := s.Stored("a", soon)
	number := s.replacement()
	row, _ := s.Read(old)
	op, _ := s.Read(number)
	answer := s.Store.Rows().CancelRow(s.t.Context(), store.Operation{ID: "a", Key: "k", Token: op.Token, Target: row.Token})
	require.NoError(s.t, answer.Err)
	require.Nil(s.t, s.Find("k", "a"))
	s.start()
	s.requireNew(number)
	require.Equal(s.t, "cancelled", s.State(old))
}
