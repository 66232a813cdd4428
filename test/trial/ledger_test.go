package trial_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/test/trial"
)

// scene is a ledger of one shard with a clock of whole seconds.
type scene struct {
	*trial.Ledger

	start time.Time
}

func newScene() scene {
	s := scene{Ledger: trial.NewLedger(), start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	s.CountShards(1)
	return s
}

func (s scene) at(second int) time.Time { return s.start.Add(time.Duration(second) * time.Second) }

func (s scene) promise(id string, due int) {
	s.Scheduled(delay.Message{ID: id, Key: "k"}, delay.Result{Ref: delay.Ref{ID: id, Key: "k"}, DueAt: s.at(due)})
}

func (s scene) arrive(id string, due, at int, attempt string) {
	s.Got(trial.Record{ID: id, Key: "k", At: s.at(at), Headers: map[string]string{
		message.HeaderDueAt: s.at(due).Format(message.TimeFormat), message.HeaderAttempt: attempt,
	}})
}

// TestPhases puts gaps, copies and disorder where they happened.
func TestPhases(t *testing.T) {
	t.Parallel()
	s := newScene()
	s.start = time.Now().Add(time.Hour).Truncate(time.Second) // All is accepted before any of it is due.
	for id, due := range map[string]int{"a": 1, "b": 2, "c": 3, "d": 4} {
		s.promise(id, due)
	}
	s.arrive("a", 1, 1, "1")
	s.arrive("b", 2, 2, "1")
	s.arrive("d", 4, 12, "1")
	s.arrive("c", 3, 13, "1")
	s.arrive("d", 4, 14, "2")
	phases := s.Phases([]trial.Mark{{Name: "steady", At: s.at(0)}, {Name: "kill", At: s.at(5)}})

	require.Equal(t, []trial.Phase{
		{Name: "steady", Arrived: 2, Gaps: []time.Duration{time.Second}},
		{Name: "kill", Arrived: 3, Duplicates: 1, OutOfOrder: 1, MaxLateness: 10 * time.Second, Gaps: []time.Duration{10 * time.Second}},
	}, phases)
	require.Equal(t, 0, s.Behind(s.at(12)))
	require.Equal(t, 1, s.Behind(s.at(13)), "a copy is no progress")
	report := s.Report()
	require.Equal(t, 1, report.Duplicates)
	require.Equal(t, 1, report.Wrong(), "only the order: %s", report)
}

// TestAcceptedLate is no disorder: the message came after a later one was due.
func TestAcceptedLate(t *testing.T) {
	t.Parallel()
	s := newScene()
	s.promise("late", 1)
	s.promise("first", 2)
	s.arrive("first", 2, 2, "1")
	s.arrive("late", 1, 3, "1")
	require.Zero(t, s.Report().OutOfOrder)
}

// TestArrivesBeforeItsAnswer is no unknown message.
func TestArrivesBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	s := newScene()
	s.arrive("a", 1, 1, "1")
	require.Equal(t, 1, s.Report().Unknown)
	s.promise("a", 1)
	report := s.Report()
	require.Zero(t, report.Wrong(), report)
	require.Equal(t, 1, report.Arrived)
}

// TestAbsent is a lie where the message arrives later.
func TestAbsent(t *testing.T) {
	t.Parallel()
	s := newScene()
	for _, id := range []string{"a", "b", "c"} {
		s.promise(id, 1)
	}
	s.arrive("a", 1, 1, "1")
	for _, id := range []string{"a", "b", "c"} {
		s.Absent(id)
	}
	require.Equal(t, 2, s.Report().Lost)
	got := trial.Record{ID: "b", Key: "k", At: time.Now().Add(time.Hour), Headers: map[string]string{
		message.HeaderDueAt: s.at(1).Format(message.TimeFormat), message.HeaderAttempt: "1",
	}}
	s.Got(got)
	got.ID, got.At, got.Seen = "c", time.Now().Add(time.Second), true // The broker may have had it in time.
	s.Got(got)
	require.Equal(t, 1, s.Report().Wrong())
	require.Equal(t, 1, s.Report().Untruthful)
}
