package command

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// statePurged is the state of a result that no waiting message has.
const statePurged = "purged"

// changeJSON is the JSON form of a change of a message.
type changeJSON struct {
	operate.Message

	Status     string `json:"status"`
	NotDurable bool   `json:"not_durable,omitempty"`
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format(message.TimeFormat)
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// describe writes a message for people, a field a line.
func describe(w io.Writer, m *operate.FoundMessage, view *operate.Message, now time.Time, withBody bool) error {
	tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := liner(tabs)
	instant := func(name string, t time.Time) { line(name, formatTime(t)+relative(t, now)) }
	found := &m.Snapshot
	line("id", found.ID)
	line("key", found.Key)
	line("queue", found.Queue)
	line("topic", found.Topic)
	line("state", view.State)
	line("route", view.Route)
	line("reason", view.Reason)
	switch {
	case m.HasEnded:
		instant(view.State, m.End.At)
		line("place", view.End.Place)
	case m.State == inspect.StateDead:
		instant("died", found.DiedAt)
	}
	instant("due", found.DueAt)
	if !m.HasEnded {
		instant("scheduled", found.ScheduledAt)
	}
	line("attempt", fmt.Sprint(found.Attempt))
	if found.MaybePublished {
		line("note", "a copy may have been published already")
	}
	line("tags", strings.Join(view.Tags, " "))
	for _, name := range slices.Sorted(maps.Keys(view.Headers)) {
		line("header", name+": "+view.Headers[name])
	}
	if !m.HasEnded {
		line("body", count(len(found.Body), "byte"))
	}
	if err := tabs.Flush(); err != nil || !withBody {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", printable(found.Body))
	return err
}

// liner returns what writes a field a line, unless it is empty.
func liner(tabs *tabwriter.Writer) func(name, value string) {
	return func(name, value string) { // Flush has the error.
		if value != "" {
			_, _ = fmt.Fprintf(tabs, "%s\t%s\n", name, value)
		}
	}
}

// inBase64 is a body in JSON: commands have all of them so, in the field body.
func inBase64(body []byte) *string { return new(base64.StdEncoding.EncodeToString(body)) }

// printable is a body that does no harm to a terminal.
func printable(body []byte) string {
	isControl := func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\n\r\t", r) }
	if utf8.Valid(body) && !strings.ContainsFunc(string(body), isControl) {
		return string(body)
	}
	return "(base64) " + base64.StdEncoding.EncodeToString(body)
}

// relative says how far away a time is, as people do.
func relative(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := t.Sub(now)
	if d < 0 {
		return " (" + about(-d) + " ago)"
	}
	return " (in " + about(d) + ")"
}

// stamped is a time of an answer, with how far away it is.
func stamped(stamp string, now time.Time) string {
	t, _ := time.Parse(message.TimeFormat, stamp) // One that is not there is not far away.
	return stamp + relative(t, now)
}

const day = 24 * time.Hour

// about rounds a duration to what people care for.
func about(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return strings.TrimSuffix(d.Round(time.Second).String(), "0s")
	case d < 2*day:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	default:
		return strings.TrimSuffix(strconv.FormatFloat(d.Hours()/24, 'f', 1, 64), ".0") + "d"
	}
}

// printableLine is an id that may not be one: what does harm to a terminal is quoted.
func printableLine(s string) string {
	if quoted := strconv.Quote(s); quoted != `"`+s+`"` {
		return quoted
	}
	return s
}
