package recurring

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	instant, err := time.Parse("2006-01-02 15:04:05", text)
	require.NoError(t, err)
	return instant
}

func record(t *testing.T, cron, setAt string) *Record {
	t.Helper()
	r := &Record{Spec: Spec{Cron: cron, Topic: "t", Missed: Skip}, Name: "n", SetAt: at(t, setAt)}
	r.newRevision(r.SetAt)
	return r
}

func texts(firings []int64) string {
	var list []string
	for _, f := range firings {
		list = append(list, time.Unix(f, 0).UTC().Format("15:04:05"))
	}
	return strings.Join(list, " ")
}

// TestPlan: what is decided, and how far.
func TestPlan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cron, planned, now string
		change             func(r *Record)
		pending, upTo      string
		skipped            int64
		isSame             bool
	}{
		"the next, however far":     {"0 20 * * *", "10:00:00", "10:00:00", nil, "20:00:00", "20:00:00", 0, false},
		"no more than that":         {"0 20 * * *", "20:00:00", "10:00:05", nil, "", "20:00:00", 0, true},
		"when it has come":          {"0 * * * *", "11:00:00", "11:00:00", nil, "12:00:00", "12:00:00", 0, false},
		"up to the horizon":         {"@every 10s", "10:00:00", "10:00:01", nil, "10:00:10 10:00:20 10:00:30", "10:00:30", 0, false},
		"late, but not missed":      {"* * * * *", "10:00:00", "10:01:59", nil, "10:01:00 10:02:00", "10:02:00", 0, false},
		"missed":                    {"* * * * *", "10:00:00", "10:05:01", nil, "10:05:00 10:06:00", "10:06:00", 4, false},
		"the latest missed":         {"* * * * *", "10:00:00", "10:05:01", func(r *Record) { r.Missed = Once }, "10:04:00 10:05:00 10:06:00", "10:06:00", 3, false},
		"some missed":               {"* * * * *", "10:00:00", "10:05:01", func(r *Record) { r.Missed, r.CatchUp = CatchUp, 3 }, "10:02:00 10:03:00 10:04:00 10:05:00 10:06:00", "10:06:00", 1, false},
		"up to the end":             {"* * * * *", "10:00:00", "10:01:30", func(r *Record) { r.Until = r.SetAt.Add(time.Minute) }, "10:01:00", "10:01:00", 0, false},
		"over":                      {"* * * * *", "10:01:00", "10:01:30", func(r *Record) { r.Until = r.SetAt.Add(time.Minute) }, "", "10:01:00", 0, true},
		"paused":                    {"* * * * *", "10:00:00", "10:05:00", func(r *Record) { r.Paused = r.SetAt }, "", "10:00:00", 0, true},
		"deleted":                   {"* * * * *", "10:00:00", "10:05:00", func(r *Record) { r.IsDeleted = true }, "", "10:00:00", 0, true},
		"not before stale ones end": {"* * * * *", "10:00:00", "10:05:00", func(r *Record) { r.Stale = &Stale{} }, "", "10:00:00", 0, true},
		"the clock was set back":    {"* * * * *", "10:05:00", "10:01:00", nil, "", "10:05:00", 0, true},
		"pending for longer than it is sure": {
			"0 0 * * *", "23:00:00", "22:30:00", func(r *Record) { r.decide([]int64{r.SetAt.Unix(), r.SetAt.Add(13 * time.Hour).Unix()}, r.SetAt) },
			"23:00:00", "23:00:00", 1, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := record(t, c.cron, "2026-05-04 10:00:00")
			r.Planned = at(t, "2026-05-04 "+c.planned)
			if c.change != nil {
				c.change(r)
			}
			isChanged, err := r.plan(at(t, "2026-05-04 "+c.now))
			require.NoError(t, err)
			require.Equal(t, c.isSame, !isChanged)
			require.Equal(t, c.pending, texts(r.Pending))
			require.Equal(t, at(t, "2026-05-04 "+c.upTo), r.Planned)
			require.Equal(t, c.skipped, r.Skipped)
		})
	}
}

// TestPlanAfterYears: it takes a bounded number of firings at a time, and each is decided once.
func TestPlanAfterYears(t *testing.T) {
	t.Parallel()
	r := record(t, "* * * * *", "2020-01-01 00:00:00")
	r.Missed, r.CatchUp = CatchUp, 20
	now := at(t, "2020-04-01 00:00:30")
	plans := 0
	for isChanged := true; isChanged; plans++ {
		var err error
		isChanged, err = r.plan(now)
		require.NoError(t, err)
		require.Less(t, plans, 5)
	}
	require.Len(t, r.Pending, 22)
	minutes := int64(now.Sub(r.SetAt) / time.Minute)
	require.Equal(t, minutes+1-22, r.Skipped)
	require.Equal(t, at(t, "2020-04-01 00:01:00"), r.Planned)
}

// TestEnd: another revision first ends what of this one is not due yet.
func TestEnd(t *testing.T) {
	t.Parallel()
	r := record(t, "@every 10s", "2026-05-04 10:00:00")
	now := at(t, "2026-05-04 10:00:41")
	_, err := r.plan(now)
	require.NoError(t, err)
	require.Equal(t, "10:00:10 10:00:20 10:00:30 10:00:40 10:00:50 10:01:00 10:01:10", texts(r.Pending))
	r.Pending = r.Pending[:1] // That is not scheduled yet.
	revision := r.Revision
	require.NoError(t, r.end(now))
	require.Equal(t, revision, r.Stale.Revision)
	require.NotEqual(t, revision, r.Revision)
	require.Equal(t, "10:00:10 10:00:40 10:00:50 10:01:00 10:01:10", texts(r.Stale.Firings), "clocks may differ by seconds")
	require.Equal(t, now, r.Planned)
	require.Empty(t, r.Pending)

	r = record(t, "@every 60s", "2026-05-04 10:00:00")
	r.Jitter = 50 * time.Second
	r.Planned = at(t, "2026-05-04 10:02:00")
	for r.dueMs(at(t, "2026-05-04 10:01:00").Unix())%60_000 < 30_000 {
		r.Name += "n"
	}
	require.NoError(t, r.end(at(t, "2026-05-04 10:01:30")))
	require.Equal(t, "10:01:00 10:02:00", texts(r.Stale.Firings), "its jitter is not over")
}

// TestSpec: what is refused names its field.
func TestSpec(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-05-04 10:00:00")
	for field, change := range map[string]func(s *Spec){
		"cron":     func(s *Spec) { s.Cron = "0 0 30 2 *" },
		"zone":     func(s *Spec) { s.Zone = "CEST!" },
		"topic":    func(s *Spec) { s.Topic = "" },
		"key":      func(s *Spec) { s.Key = " " },
		"header":   func(s *Spec) { s.Headers = map[string]string{message.HeaderRecurring: "x"} },
		"body":     func(s *Spec) { s.Body = make([]byte, MaxTemplate) },
		"missed":   func(s *Spec) { s.Missed = "never" },
		"catch_up": func(s *Spec) { s.Missed = CatchUp },
		"jitter":   func(s *Spec) { s.Jitter = 61 * time.Second },
	} {
		s := Spec{Cron: "* * * * *", Topic: "t"}
		require.NoError(t, s.check("n", "", now))
		change(&s)
		var invalid *message.InvalidError
		require.ErrorAs(t, s.check("n", "", now), &invalid, field)
		require.Equal(t, field, invalid.Field, invalid)
	}
	s := Spec{Cron: "* * * * *", Topic: "t", Until: now}
	require.Error(t, s.check("n", "", now), "it never fires")
	for _, name := range []string{"", "a b", "-a", "a@b", strings.Repeat("a", 129)} {
		require.Error(t, CheckName(name), name)
	}
}
