package recurring

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// fields is an expression in the words of this test, so that nothing of the product reads it: nil is *.
type fields struct {
	text                              string
	minutes, hours, days, months, dow []int

	times [1440]bool // of a day
}

var anyTimes [1440]bool // of a day, of any expression

func has(list []int, n int) bool { return list == nil || slices.Contains(list, n) }

func init() {
	for i := range expressions {
		f := &expressions[i]
		for minute := range f.times {
			f.times[minute] = has(f.minutes, minute%60) && has(f.hours, minute/60)
			anyTimes[minute] = anyTimes[minute] || f.times[minute]
		}
	}
}

// matches asks for a minute since 1970 of a clock that runs as UTC does.
func (f *fields) matches(minute int64) bool {
	if !f.times[minute%1440] { // Most are not.
		return false
	}
	local := time.Unix(60*minute, 0).UTC()
	day, weekday := has(f.days, local.Day()), has(f.dow, int(local.Weekday()))
	isDay := day && weekday
	if f.days != nil && f.dow != nil {
		isDay = day || weekday
	}
	return isDay && has(f.months, int(local.Month()))
}

func stepped(step, below int) (list []int) {
	for n := 0; n < below; n += step {
		list = append(list, n)
	}
	return list
}

var expressions = []fields{
	{text: "*/30 * * * *", minutes: stepped(30, 60)},
	{text: "7 * * * *", minutes: []int{7}},
	{text: "30 2 * * *", minutes: []int{30}, hours: []int{2}},
	{text: "0,45 */2 * * *", minutes: []int{0, 45}, hours: stepped(2, 24)},
	{text: "15 0-3 * * SUN", minutes: []int{15}, hours: []int{0, 1, 2, 3}, dow: []int{0}},
	{text: "@daily", minutes: []int{0}, hours: []int{0}},
	{text: "59 23 29-31 * *", minutes: []int{59}, hours: []int{23}, days: []int{29, 30, 31}},
	{text: "0 1 1 3,10,11 7", minutes: []int{0}, hours: []int{1}, days: []int{1}, months: []int{3, 10, 11}, dow: []int{0}},
	{text: "*/20 22-2 * * *", minutes: stepped(20, 60), hours: []int{22, 23, 0, 1, 2}},
}

// walk goes through all minutes between two instants, and finds the firings by the rule alone: it knows no change
// of an offset, but sees that the clock jumps.
func walk(zone *time.Location, from, to time.Time, fire func(f *fields, at time.Time)) {
	minute := func(at time.Time) int64 {
		_, offset := at.Zone()
		return (at.Unix() + int64(offset)) / 60
	}
	seen := minute(from.In(zone).Add(-time.Minute)) // the latest local minute so far
	for at := from.In(zone); at.Before(to); at = at.Add(time.Minute) {
		now := minute(at)
		if now == seen+1 && !anyTimes[now%1440] {
			seen = now
			continue
		}
		for i := range expressions {
			f := &expressions[i]
			isFiring := f.matches(now)
			if f.hours != nil {
				isFiring = isFiring && now > seen
				for skipped := seen + 1; skipped < now; skipped++ {
					isFiring = isFiring || f.matches(skipped)
				}
			}
			if isFiring {
				fire(f, at)
			}
		}
		seen = max(seen, now)
	}
}

// TestFiringsOfFiveYears compares with a walk over all minutes of five years in ten zones, among them such as skip midnight,
// a day, or half an hour.
func TestFiringsOfFiveYears(t *testing.T) {
	t.Parallel()
	from := time.Date(2008, 1, 1, 0, 0, 0, 0, time.UTC)
	zones := []string{
		"America/New_York", "Europe/Berlin", "Europe/Dublin", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kolkata",
		"Africa/Casablanca", "Asia/Tehran", "America/St_Johns",
	}
	if testenv.IsRaced { // There it takes five times as long, and finds nothing.
		zones = zones[:1]
	}
	for _, name := range zones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(name)
			require.NoError(t, err)
			tables, at := map[string]*timetable{}, map[string]time.Time{}
			for _, f := range expressions {
				tables[f.text], err = newTimetable(f.text, name, from, time.Time{})
				require.NoError(t, err)
				at[f.text] = from.Add(-1)
			}
			firings, wrong := 0, 0
			walk(zone, from, from.AddDate(5, 0, 0), func(f *fields, want time.Time) {
				found := tables[f.text].next(at[f.text])
				if !found.Equal(want) {
					if wrong++; wrong < 5 {
						t.Errorf("%s fires at %s, expected %s", f.text, found.In(zone), want)
					}
				}
				at[f.text] = want
				firings++
			})
			t.Logf("%d firings, %d wrong", firings, wrong)
			require.Greater(t, firings, 150_000)
		})
	}
}

// TestClockChanges are the rules of docs/recurring.md.
func TestClockChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ expression, zone, after, want string }{
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"},    // 02:30 does not exist: 03:00
		{"30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},    // and once only
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"},    // the first 02:30
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},    // and not the second
		{"30 * * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"},    // but each hour
		{"30 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"},    // none is lost
		{"0 */2 * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T03:00:00Z"},   // 02:00 once, then 04:00
		{"0 0 * * *", "America/Sao_Paulo", "2017-10-14T12:00:00Z", "2017-10-15T03:00:00Z"}, // midnight does not exist
		{"0 9 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z", "2011-12-30T10:00:00Z"},    // nor the day
		{"0 0 29 2 *", "", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},                 // no leap day in 2100
		{"@every 90s", "", "2026-01-01T00:00:00Z", "2026-01-01T00:00:30Z"},
		{"@every 90s", "", "2026-01-01T00:00:30Z", "2026-01-01T00:02:00Z"},
	} {
		after, err := time.Parse(time.RFC3339, c.after)
		require.NoError(t, err)
		table, err := newTimetable(c.expression, c.zone, time.Date(2025, 12, 31, 23, 59, 0, 5, time.UTC), time.Time{})
		require.NoError(t, err)
		require.Equal(t, c.want, table.next(after).Format(time.RFC3339), "%s in %s", c.expression, c.zone)
	}
}

// TestRefusedExpressions name the field, its value and what is allowed.
func TestRefusedExpressions(t *testing.T) {
	t.Parallel()
	for i, c := range [][3]string{
		{"", "", "cron"},
		{"* * * *", "", "cron"},
		{"* * * * * *", "", "cron"},
		{"60 * * * *", "", "cron"},
		{"@every 999ms", "", "cron"},
		{"@every 1500ms", "", "cron"},
		{"@reboot", "", "cron"},
		{"TZ=UTC * * * * *", "", "cron"},
		{"H * * * *", "", "cron"},
		{"0 20 * * FOO", "", "cron"},
		{"0 0 L * *", "", "cron"},
		{"*/0 * * * *", "", "cron"},
		{"* * * * *", "Mars/Olympus", "zone"},
		{"* * * * *", "Local", "zone"},
		{"* * * * *", "../etc", "zone"},
	} {
		_, err := newTimetable(c[0], c[1], time.Now(), time.Time{})
		var invalid *message.InvalidError
		require.ErrorAs(t, err, &invalid, fmt.Sprint(i, c))
		require.Equal(t, c[2], invalid.Field)
		require.NotContains(t, invalid.Error(), "strconv")
	}
}
