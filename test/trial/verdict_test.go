package trial

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestVerdict: what the loss of an incident cannot have caused is not excused.
func TestVerdict(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	reverted := Incident{Name: "power cut", From: at(100), To: at(102), Loss: RevertsRedis}
	lost := Incident{Name: "FLUSHALL", From: at(100), To: at(102), Loss: LosesRedis}
	arrived := func(second, due int, attempt string) arrival {
		return arrival{at: at(second), due: at(due), attempt: attempt}
	}
	cancelled := func(second int, records ...arrival) *promise {
		return &promise{cancelled: true, cancelTried: at(second), dues: []time.Time{at(104)}, records: records}
	}
	moved := func(second int, records ...arrival) *promise {
		return &promise{
			dues: []time.Time{at(120)}, records: records,
			operations: []committedOperation{{at: at(second), bookedOperation: bookedOperation{due: at(120)}}},
		}
	}
	rescheduled := func(records ...arrival) *promise {
		p := cancelled(80, records...)
		p.dues, p.lostDues = append(p.dues, at(105)), []time.Time{at(105)}
		return p
	}
	due := func(records ...arrival) *promise {
		return &promise{dues: []time.Time{at(104)}, records: records}
	}
	for name, c := range map[string]struct {
		promise  *promise
		incident Incident
		want     Verdict
	}{
		"cancel taken back":                   {cancelled(99, arrived(104, 104, "1")), reverted, Verdict{ResurrectedAllowed: 1}},
		"cancel long before":                  {cancelled(80, arrived(104, 104, "1")), reverted, Verdict{Resurrected: 1}},
		"cancel after":                        {cancelled(103, arrived(104, 104, "1")), reverted, Verdict{Resurrected: 1}},
		"cancel, and Redis is empty":          {cancelled(99, arrived(104, 104, "1")), lost, Verdict{Resurrected: 1}},
		"after a reschedule that was lost":    {rescheduled(arrived(105, 105, "1")), lost, Verdict{ResurrectedAllowed: 1}},
		"not at the lost reschedule's time":   {rescheduled(arrived(104, 104, "1")), lost, Verdict{Resurrected: 1}},
		"reschedule taken back":               {moved(99, arrived(105, 105, "1")), reverted, Verdict{WrongDueAllowed: 1}},
		"reschedule long before":              {moved(80, arrived(105, 105, "1")), reverted, Verdict{WrongDue: 1}},
		"reschedule taken back before it was": {moved(99, arrived(98, 98, "1")), reverted, Verdict{WrongDue: 1}},
		"reschedule, and Redis is empty":      {moved(99, arrived(105, 105, "1")), lost, Verdict{WrongDue: 1}},
		"claim taken back":                    {due(arrived(104, 104, "1"), arrived(105, 104, "1")), reverted, Verdict{Copies: 1, UnmarkedAllowed: 1}},
		"unmarked, and Redis is empty":        {due(arrived(104, 104, "1"), arrived(105, 104, "1")), lost, Verdict{Copies: 1, Unmarked: 1}},
		"marked":                              {due(arrived(104, 104, "1"), arrived(105, 104, "2")), lost, Verdict{Copies: 1}},
		"copies long after": {
			due(arrived(130, 104, "1"), arrived(131, 104, "1")), reverted, Verdict{Copies: 1, Unmarked: 1, Unexplained: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := NewLedger()
			l.promises["id"] = c.promise
			got := l.Judge([]Incident{c.incident})
			got.Published, got.CaughtUp, got.Problems = 0, 0, nil
			require.Equal(t, c.want, got)
		})
	}
}
