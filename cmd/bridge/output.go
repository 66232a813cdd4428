package main

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

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// States of a result that no waiting message has.
const (
	stateCancelled = "cancelled"
	statePurged    = "purged"
)

// messageJSON is a message as programs see it.
type messageJSON struct {
	ID      string   `json:"id"`
	Key     string   `json:"key"`
	Queue   string   `json:"queue"`
	Topic   string   `json:"topic"`
	DueAt   *string  `json:"due_at"`
	State   string   `json:"state"`
	Attempt int      `json:"attempt"`
	Tags    []string `json:"tags,omitempty"`
	// Reason and DiedAt are of dead letters only.
	Reason string  `json:"reason,omitempty"`
	DiedAt *string `json:"died_at,omitempty"`
	// EndedAt and Place are of messages that have ended.
	EndedAt *string `json:"ended_at,omitempty"`
	Place   string  `json:"place,omitempty"`
	// SealedBy is the id of the key with which the body is encrypted.
	SealedBy string `json:"sealed_by,omitempty"`
	// Body is there only where it was asked for, and is clear.
	Body *[]byte `json:"body,omitempty"`
}

// toJSON turns a message into its JSON form; a zero due time is null.
func toJSON(queue string, m *message.Message, state string) messageJSON {
	id, _ := m.SealedBy()
	return messageJSON{
		ID: m.ID, Key: m.Key, Queue: queue, Topic: m.Topic, DueAt: stamp(m.DueAt), State: state, Attempt: m.Attempt,
		Tags: m.Tags(), SealedBy: id,
	}
}

// withBody adds the body.
func (j messageJSON) withBody(body []byte) messageJSON {
	body = append([]byte{}, body...) // nil would be null.
	j.Body = &body
	return j
}

func (j messageJSON) withDeath(reason string, diedAt time.Time) messageJSON {
	j.Reason, j.DiedAt = reason, stamp(diedAt)
	return j
}

func (j messageJSON) withEnd(end *message.End) messageJSON {
	j.EndedAt = stamp(end.At)
	if end.Kind == message.EndPublished {
		j.Place = end.Detail
	} else {
		j.Reason = end.Detail
	}
	return j
}

func stamp(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := formatTime(t)
	return &text
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

// stateOf is the state of a message in the store.
func stateOf(code store.Code) string {
	switch code {
	case store.InFlight:
		return string(delay.InFlight)
	case store.Dead:
		return string(delay.Dead)
	default:
		return string(delay.Scheduled)
	}
}

// describe writes a message for people, a field a line.
func describe(w io.Writer, found *inspect.Found, now time.Time, withBody bool) error {
	tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, value string) { _, _ = fmt.Fprintf(tabs, "%s\t%s\n", name, value) } // Flush has the error.
	line("id", found.ID)
	if found.Key != "" {
		line("key", found.Key)
	}
	line("queue", found.Queue)
	line("topic", found.Topic)
	line("state", stateOf(found.Code))
	if found.Code == store.Dead {
		line("reason", found.Reason)
		line("died", formatTime(found.DiedAt)+relative(found.DiedAt, now))
	}
	line("due", formatTime(found.DueAt)+relative(found.DueAt, now))
	line("scheduled", formatTime(found.ScheduledAt)+relative(found.ScheduledAt, now))
	line("attempt", fmt.Sprint(found.Attempt))
	if found.MaybePublished {
		line("note", "a copy may have been published already")
	}
	headers, _ := message.CutUID(found.Headers)
	headers, tags := message.CutTags(headers)
	if len(tags) > 0 {
		line("tags", strings.Join(tags, " "))
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		line("header", name+": "+headers[name])
	}
	line("body", count(len(found.Body), "byte"))
	if err := tabs.Flush(); err != nil || !withBody {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", printable(found.Body))
	return err
}

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
