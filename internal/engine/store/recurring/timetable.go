package recurring

import (
	"strings"
	"time"

	"github.com/netresearch/go-cron"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

const (
	maxExpression = 255
	// The bounds of @every.
	leastInterval, mostInterval = time.Second, 87600 * time.Hour
	// searchYears is how far ahead a firing may be: 29 February can be eight years away.
	searchYears = message.MaxDelayYears
	everyHour   = 1<<24 - 1
)

// parser reads five fields. Days match as in crontab: where both are restricted, either one is enough.
var parser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom).
	WithMaxSearchYears(searchYears)

// timetable says when a schedule fires.
//
// The parser's library finds local times only in UTC, where each exists once: in other zones it
// fires twice for a time that occurs twice, and late for one that does not exist. So the rules for these are here:
//
//   - an expression for every hour (the hour field is * or names all 24) fires at each minute whose
//     local time matches, so also in both of two hours of the same name;
//   - any other one fires once for a time that occurs twice, at its first occurrence; and where the clock skips
//     a time, when the gap ends, once for all that is skipped.
type timetable struct {
	every    time.Duration // of @every; 0: a cron expression
	anchor   time.Time     // of @every
	walls    *cron.SpecSchedule
	zone     *time.Location
	isHourly bool
	until    time.Time // zero: without an end
}

// newTimetable reads an expression. The anchor is from when an @every counts. Its error is a [*message.InvalidError].
func newTimetable(expression, zone string, anchor, until time.Time) (*timetable, error) {
	refused := func(limit string) (*timetable, error) {
		return nil, &message.InvalidError{Field: "cron", Value: expression, Limit: limit}
	}
	if expression == "" || len(expression) > maxExpression {
		return refused("1 to 255 bytes")
	}
	if strings.Contains(expression, "TZ=") {
		return refused("the time zone has a field of its own")
	}
	t := &timetable{anchor: anchor.Truncate(time.Second), until: until}
	var err error
	if t.zone, err = loadZone(zone); err != nil {
		return nil, err
	}
	if every, is := strings.CutPrefix(expression, "@every "); is {
		t.every, err = time.ParseDuration(every)
		if err != nil || t.every < leastInterval || t.every > mostInterval || t.every%time.Second != 0 {
			return refused("@every has whole seconds, from 1s to 87600h")
		}
		return t, nil
	}
	parsed, err := parser.Parse(expression)
	if err != nil {
		reason, _, _ := strings.Cut(err.Error(), ": strconv.") // What Go says of a number is no news.
		return refused("five fields (minute, hour, day of the month, month, day of the week), @hourly and the like, or @every 90s: " + reason)
	}
	t.walls, _ = parsed.(*cron.SpecSchedule)
	t.walls.Location = time.UTC
	t.isHourly = t.walls.Hour&everyHour == everyHour
	return t, nil
}

// loadZone finds an IANA time zone; an empty one is UTC.
func loadZone(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" { // That is another one on each machine.
		return nil, &message.InvalidError{Field: "zone", Value: name, Limit: "must be the name of an IANA time zone, such as Europe/Berlin"}
	}
	return zone, nil
}

// next returns the first firing after an instant, in whole seconds; zero if there is none within ten years, or before the end.
func (t *timetable) next(after time.Time) time.Time {
	var at time.Time
	if t.every > 0 {
		passed := max(0, after.Sub(t.anchor)) / t.every
		at = t.anchor.Add((passed + 1) * t.every)
	} else {
		at = t.match(after.In(t.zone))
	}
	if !t.until.IsZero() && at.After(t.until) {
		return time.Time{}
	}
	return at.UTC()
}

// match goes from one change of the zone's offset to the next. Between two of them, local time runs as UTC does.
func (t *timetable) match(after time.Time) time.Time {
	from := wall(after) // Local times up to it are over.
	for limit := after.AddDate(searchYears, 0, 0); after.Before(limit); {
		start, end := after.ZoneBounds()
		offset := offsetAt(after)
		if !t.isHourly && !start.IsZero() { // What the offset before had already does not occur again.
			from = later(from, wallAt(start, offsetAt(start.Add(-1))).Add(-1))
		}
		found := t.walls.Next(from)
		if found.IsZero() {
			return time.Time{}
		}
		if at := found.Add(-offset); end.IsZero() || at.Before(end) {
			return at
		}
		from, after = wall(end).Add(-1), end
		if !t.isHourly && found.Before(wall(end)) { // The clock skips it.
			return end
		}
	}
	return time.Time{}
}

// wall returns local time as if it were UTC.
func wall(t time.Time) time.Time { return wallAt(t, offsetAt(t)) }

func wallAt(t time.Time, offset time.Duration) time.Time { return t.UTC().Add(offset) }

func offsetAt(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
