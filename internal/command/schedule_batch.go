package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/ijson"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

const (
	// batchLines and batchBytes are how much is scheduled at a time, at most, but for
	// a line that is larger.
	batchLines = 500
	batchBytes = 4 << 20
	// longestEscape is how many bytes one byte of a body may take in JSON.
	longestEscape = 6
	// lineRest is room in a line for all but the message.
	lineRest = 4 << 10
)

// batchLine is a line of the input.
type batchLine struct {
	number  int
	text    []byte
	tooLong bool
}

// lineJSON answers a line.
type lineJSON struct {
	Line int `json:"line"`
	operate.ScheduleResult
}

// batch schedules lines as they come.
type batch struct {
	*session
	conflict string
	tally    operate.Tally
}

func (c scheduleCommand) runBatch(p *program) error {
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.ensureLayout(); err != nil {
		return s.fail("schedule in", "", err)
	}
	s.silent.Stop() // Input may come slowly; each call has a limit of its own.
	input := p.stdin
	if c.Batch != "-" {
		file, err := os.Open(c.Batch)
		if err != nil {
			return usagef("--batch: %v", err)
		}
		defer func() { _ = file.Close() }() // It was only read.
		input = file
	}
	b := &batch{session: s, conflict: c.Conflict, tally: operate.Tally{}}
	err = b.run(input)
	if len(b.tally) > 0 {
		writeDown(p, s.asJSON, s.Store, &inspect.Change{Action: "schedule", Answer: b.tally.String()})
	}
	return err
}

// run takes what lines there are, and does not wait for more than one.
func (b *batch) run(input io.Reader) error {
	lines, failed := make(chan batchLine), make(chan error, 1)
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	go func() { // A read cannot be interrupted; it ends with the program.
		defer close(lines)
		failed <- readLines(ctx, input, longestEscape*int(b.config.MaxMessage)+lineRest, lines)
	}()
	for {
		var part []batchLine
		select {
		case line, ok := <-lines:
			if !ok {
				return b.end(<-failed)
			}
			part = append(part, line)
		case <-b.ctx.Done():
			return b.end(b.ctx.Err())
		}
		size := len(part[0].text)
	more:
		for len(part) < batchLines && size < batchBytes {
			select {
			case line, ok := <-lines:
				if !ok {
					break more
				}
				part, size = append(part, line), size+len(line.text)
			default:
				break more
			}
		}
		if err := b.schedule(part); err != nil {
			return b.end(err)
		}
	}
}

// readLines sends the lines of the input; of one that is too long only that it is.
func readLines(ctx context.Context, input io.Reader, most int, lines chan<- batchLine) error {
	reader := bufio.NewReaderSize(input, 1<<16)
	for line := (batchLine{number: 1}); ; {
		part, err := reader.ReadSlice('\n')
		if line.tooLong = line.tooLong || len(line.text)+len(part) > most; !line.tooLong {
			line.text = append(line.text, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(bytes.TrimSpace(line.text)) > 0 || line.tooLong {
			select {
			case lines <- line:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read line %d: %w", line.number, err)
		}
		line = batchLine{number: line.number + 1}
	}
}

var errBatchStopped = errors.New("the lines behind these were not scheduled")

// schedule schedules some lines, and answers them in their order.
func (b *batch) schedule(lines []batchLine) error {
	messages, answers := make([]operate.Schedule, len(lines)), make([]error, len(lines))
	for i := range lines {
		if answers[i] = lines[i].decode(&messages[i]); messages[i].Conflict == "" {
			messages[i].Conflict = b.conflict
		}
	}
	results := b.ScheduleAll(b.ctx, messages, func(i int) error { return answers[i] })
	var stop error
	for i := range results {
		if err := b.answer(lines[i].number, &results[i]); err != nil {
			return err
		}
		if p := results[i].Error; p != nil && p.Code == "unavailable" {
			stop = fmt.Errorf("%w: %w", delay.ErrUnavailable, errBatchStopped)
		}
	}
	return stop
}

func (b *batch) answer(line int, result *operate.ScheduleResult) error {
	b.tally[result.Answer()]++
	if b.asJSON {
		return writeJSON(b.program.stdout, lineJSON{line, *result})
	}
	if p := result.Error; p != nil {
		field := ""
		if p.Field != "" && !strings.HasPrefix(p.Detail, p.Field+" ") {
			field = p.Field + ": "
		}
		_, err := fmt.Fprintf(b.program.stderr, "bridge: line %d: %s%s\n", line, field, p.Detail)
		return err
	}
	note := ""
	if result.NotDurable {
		note = ", not confirmed in time"
	}
	_, err := fmt.Fprintf(b.program.stdout, "%s %s: due %s%s\n", result.Status, result.ID, result.DueAt, note)
	return err
}

// end sums the lines up.
func (b *batch) end(err error) error {
	total, text := 0, ""
	worst := &failure{exit: exitDone}
	for _, status := range slices.Sorted(maps.Keys(b.tally)) {
		n := b.tally[status]
		total, text = total+n, text+fmt.Sprintf(", %d %s", n, status)
		exit := exitOf(status)
		if status == "created" || status == "replaced" || status == "existing" {
			continue
		}
		if worst.exit == exitDone || exit < worst.exit {
			worst = &failure{code: status, exit: exit}
		}
	}
	text = count(total, "line") + text
	switch {
	case err != nil:
		return b.fail("schedule in", "", fmt.Errorf("%w (%s)", err, text))
	case worst.exit != exitDone:
		worst.text = text
		return worst
	}
	_, err = fmt.Fprintln(b.program.stderr, "bridge: "+text)
	return err
}

// jsonType is how JSON calls what is decoded into a member of a line, or into one of its values.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Slice:
		return "a list"
	default:
		return "a string"
	}
}

// decode reads the line. Its error names the field.
func (l *batchLine) decode(m *operate.Schedule) error {
	switch {
	case l.tooLong:
		return operate.Invalid("body", "the line is longer than any message of the queue may be")
	case !utf8.Valid(l.text):
		return operate.Invalid("body", "the line is not UTF-8: give other bytes as body_base64")
	}
	err := ijson.Decode(l.text, m)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field == "" {
		return operate.Invalid("", "must be a JSON object, not "+wrong.Value)
	} else if ok {
		field := strings.TrimPrefix(wrong.Field, "When.") // The library names the struct that is embedded, too.
		return operate.Invalid(field, wrong.Value+" in the place of "+jsonType(wrong.Type))
	}
	if wrong, ok := errors.AsType[*ijson.Error](err); ok {
		return operate.Invalid(wrong.Field, wrong.Error())
	}
	if err != nil {
		return operate.Invalid("", "no JSON of one message: "+err.Error())
	}
	if _, ok := operate.Conflicts[m.Conflict]; !ok {
		return operate.Invalid("conflict", "must be reject, keep or replace")
	}
	return nil
}
