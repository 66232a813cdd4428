package inputs

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// outboxInsert is a row as a producer without the SDK writes it: columns and values.
type outboxInsert map[string]any

// rowsEntrance is the outbox' table, where producers without the SDK insert rows by SQL.
// The relay refuses each. What the database itself cannot store, as bytes that are no
// UTF-8, is not tried.
type rowsEntrance struct {
	aim
	db *sql.DB
}

func (e rowsEntrance) name() string { return "rows" }

func (e rowsEntrance) inputs(ctx context.Context) (list []input, err error) {
	var p patience
	add := func(what string, names []string, values outboxInsert) {
		if err != nil {
			return
		}
		var number int64
		if number, err = e.insert(ctx, len(list), values); err != nil {
			err = fmt.Errorf("insert a row, %s: %w", what, err)
		}
		list = append(list, input{what, names, func(ctx context.Context) answer { return e.decided(ctx, number, &p) }})
	}
	e.badContent(add)
	badColumns(add)
	e.badOperations(add)
	return list, err
}

// badContent is what the SDK would refuse, too. Topics are wrong far beyond the
// horizon, where they are found all the same.
func (e rowsEntrance) badContent(add func(string, []string, outboxInsert)) {
	far := time.Now().AddDate(100, 0, 0).UnixMilli()
	for _, bad := range spoil(e.message(), e.random("rows")) {
		m, names := &bad.message, bad.names
		values := outboxInsert{"topic": m.Topic, "body": m.Body, "message_key": m.Key}
		if m.ID != keptID {
			values["message_id"] = m.ID
		}
		headers := maps.Clone(m.Headers)
		if headers == nil {
			headers = map[string]string{}
		}
		if len(m.Tags) > 0 {
			headers["delay-tags"] = strings.Join(m.Tags, ",")
		}
		isGood := strings.Join(m.Tags, "") == "gooda,b" || reservedInRows(m.Headers) // Rows have tags in a header, with commas.
		if m.Late.After != 0 || m.Late.Then != "" {
			headers["delay-late"] = fmt.Sprint(m.Late.Then, " ", m.Late.After)
		}
		if isGood || !isStorable(m.ID+m.Key+m.Topic) || !isStorable(fmt.Sprint(headers)) {
			continue
		}
		text, _ := json.Marshal(headers) // They are strings.
		values["headers"] = string(text)
		add(bad.what, names, values)
		if m.Topic != e.topic {
			add("far: "+bad.what, names, withColumn(values, "due_ms", far))
		}
	}
}

// isStorable reports whether PostgreSQL takes it as text.
func isStorable(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// withColumn is the row with one more value.
func withColumn(values outboxInsert, column string, value any) outboxInsert {
	changed := maps.Clone(values)
	changed[column] = value
	return changed
}

// badColumns is what only the columns can have.
func badColumns(add func(string, []string, outboxInsert)) {
	for _, due := range []int64{-1, math.MinInt64, 253402300800000, 1_800_000_000_000_000, 1_800_000_000_000_000_000, math.MaxInt64} {
		add(fmt.Sprint("due_ms ", due), []string{"due_ms"}, outboxInsert{"due_ms": due})
	}
	for _, headers := range []string{`[]`, `["a"]`, `"a"`, `7`, `true`, `{"a": 1}`, `{"a": true}`, `{"a": null}`, `{"a": ["b"]}`, `{"a": {"b": "c"}}`} {
		add("headers "+headers, []string{"header"}, outboxInsert{"headers": headers})
	}
	for _, headers := range []string{
		`{"delay-late": ""}`, `{"delay-late": "dead"}`, `{"delay-late": "dead soon"}`, `{"delay-late": "burn 1h"}`, `{"delay-late": "dead -1h"}`,
		`{"delay-late": "drop 0s"}`, `{"delay-late": "drop 99999999999h"}`, `{"delay-tags": ""}`, `{"delay-tags": "a,,b"}`, `{"delay-tags": ","}`,
		`{"delay-sealed": ""}`, `{"delay-sealed": "a b"}`, `{"delay-sealed": "` + strings.Repeat("a", 33) + `"}`,
	} {
		add("headers "+headers, []string{"late", "tag", "header"}, outboxInsert{"headers": headers})
	}
	for _, token := range badTokens() {
		add(fmt.Sprintf("token %q", token), []string{"token"}, outboxInsert{"token": token})
	}
	for _, size := range []int{mostSize, 4 * mostSize} {
		add(fmt.Sprint("body of ", size), []string{"body"}, outboxInsert{"body": make([]byte, size)})
	}
}

// badTokens are not 16 bytes that begin with one ~.
func badTokens() []string {
	return []string{"", "~", "a", "~~23456789abcdef", "0123456789abcdef", "~123456789abcdefg", "~123456789abcde", strings.Repeat("~", 16), "~" + strings.Repeat("é", 8)}
}

// badOperations are no cancels and no reschedules.
func (e rowsEntrance) badOperations(add func(string, []string, outboxInsert)) {
	for _, op := range []int{-1, 4, 99, math.MinInt16, math.MaxInt16} {
		add(fmt.Sprint("op ", op), []string{"op"}, outboxInsert{"op": op})
	}
	const cancel, reschedule = 1, 2
	for _, due := range []int64{-1, math.MinInt64, 253402300800000, math.MaxInt64} {
		add(fmt.Sprint("reschedule: due_ms ", due), []string{"due_ms"}, outboxInsert{"op": reschedule, "due_ms": due})
	}
	for _, token := range badTokens() {
		add(fmt.Sprintf("cancel: token %q", token), []string{"token"}, outboxInsert{"op": cancel, "token": token})
	}
	for _, id := range badNames(e.random("operations")) {
		if isStorable(id) {
			add(fmt.Sprintf("cancel: id %.80q", id), fieldNames("id"), outboxInsert{"op": cancel, "message_id": id})
			add(fmt.Sprintf("reschedule: key %.80q", id), fieldNames("key"), outboxInsert{"op": reschedule, "message_key": id})
		}
	}
}

// insert commits a row, and returns its number.
func (e rowsEntrance) insert(ctx context.Context, n int, values outboxInsert) (number int64, err error) {
	row := outboxInsert{
		"queue": e.queue, "message_id": fmt.Sprint("row-", n), "topic": e.topic, "body": []byte("bad"),
		"due_ms": time.Now().Add(time.Hour).UnixMilli(),
	}
	maps.Copy(row, values)
	columns := slices.Sorted(maps.Keys(row))
	marks, args := make([]string, len(columns)), make([]any, len(columns))
	for i, column := range columns {
		marks[i], args[i] = fmt.Sprint("$", i+1), row[column]
	}
	query := "INSERT INTO delay_outbox (" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(marks, ", ") + ") RETURNING id"
	err = e.db.QueryRowContext(ctx, query, args...).Scan(&number)
	return number, err
}

// decided waits until the relay has decided about a row.
func (e rowsEntrance) decided(ctx context.Context, number int64, p *patience) answer {
	const refused = 6
	ctx, cancel := p.bound(ctx)
	defer cancel()
	for {
		var status int
		var reason string
		err := e.db.QueryRowContext(ctx, "SELECT status, reason FROM delay_outbox WHERE id = $1", number).Scan(&status, &reason)
		switch {
		case err != nil && ctx.Err() == nil:
			return answer{broken: true, text: err.Error()}
		case err == nil && status != 0:
			return answer{refused: status == refused, text: fmt.Sprintf("%s (status %d)", reason, status)}
		case !wait.Sleep(ctx, 20*time.Millisecond):
			return answer{text: "pending still"}
		}
	}
}
