package vectors_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/operate"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
)

// slack is how long after a call its test may look at the database's clock.
const slack = time.Minute

// when is the call's due time; the zero value if it has none.
func (c *call) when() (w delay.When) {
	switch {
	case c.InMs != nil:
		w = delay.After(milliseconds(*c.InMs))
	case c.At != nil:
		w = delay.At(*c.At)
	}
	return w.MaxWait(milliseconds(c.MaxWait)).Spread(milliseconds(c.Spread))
}

func milliseconds(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// message is the call's message.
func (c *call) message() delay.Message {
	m := delay.Message{ID: c.ID, Key: c.Key, Topic: c.Topic, Headers: c.Headers, Tags: c.Tags, Body: c.Bytes}
	if c.Body != "" {
		m.Body = []byte(c.Body)
	}
	if c.Late != nil {
		m.Late = delay.Late{After: milliseconds(c.Late.AfterMs), Then: delay.LateAction(c.Late.Then)}
	}
	return m
}

// write makes a call of the outbox and returns its result as the vectors have it.
func (c *call) write(ctx context.Context, box *outbox.Outbox, tx *sql.Tx) (result object) {
	ref := delay.Ref{ID: c.ID, Key: c.Key}
	result = object{}
	var err error
	switch c.Do {
	case "cancel":
		err = box.Cancel(ctx, tx, c.Queue, ref)
	case "reschedule":
		err = box.Reschedule(ctx, tx, c.Queue, ref, c.when())
	default:
		request := delay.Request{Message: c.message(), When: c.when(), Conflict: operate.Conflicts[c.Conflict]}
		results, failed := box.ScheduleBatch(ctx, tx, c.Queue, []delay.Request{request})
		ref, err = results[0].Ref, results[0].Err
		result = object{"id": ref.ID, "key": ref.Key, "status": string(results[0].Status)}
		if err == nil {
			err = failed
		}
	}
	if err == nil {
		return result
	}
	fault := operate.Classify(err)
	told := object{"code": fault.Code}
	if fault.Field != "" {
		told["field"] = fault.Field
	}
	if errors.Is(err, delay.ErrDuplicate) {
		told["id"] = ref.ID
	}
	return object{"error": told}
}

// rows are all rows of the table, in the order of their ids, as the vectors have them.
func rows(t *testing.T, d *outboxtest.Database) (found []object) {
	t.Helper()
	var (
		id, due, revision                       int64
		op                                      int
		tried                                   bool
		target                                  sql.NullInt64
		queue, key, message, token, topic, live string
		headers                                 sql.NullString
		body                                    []byte
		ids                                     []int64
		tokens                                  []string
	)
	err := d.Query(t.Context(), d.SQL, []any{&id, &queue, &key, &message, &op, &target, &tried, &token, &revision, &due, &topic, &headers, &body, &live}, func() {
		ids, tokens = append(ids, id), append(tokens, token)
		row := object{
			"queue": queue, "message_key": key, "message_id": message, "op": float64(op), "target": nil, "tried": tried, "revision": float64(revision),
			"due_ms": float64(due), "topic": topic, "headers": nil, "body": base64.StdEncoding.EncodeToString(body),
		}
		if target.Valid {
			row["target"] = float64(slices.Index(ids, target.Int64))
		}
		if headers.Valid {
			var all object
			require.NoError(t, json.Unmarshal([]byte(headers.String), &all))
			row["headers"] = all
		}
		found = append(found, row)
		assert.Len(t, token, 16)
		assert.Equal(t, byte('~'), token[0])
	}, "SELECT id, queue, message_key, message_id, op, target, tried, token, revision, due_ms, topic, headers, body, reason FROM {t} ORDER BY id")
	require.NoError(t, err)
	slices.Sort(tokens)
	assert.Len(t, slices.Compact(tokens), len(ids), "no two tokens are alike")
	return found
}

// TestOutbox has delay/outbox write the rows of each vector into both databases.
func TestOutbox(t *testing.T) {
	var vectors struct {
		Vectors []struct {
			Name    string
			Calls   []call
			Rows    []object
			Results []any
		}
	}
	read(t, "outbox.json", &vectors)
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		dialect := outbox.MySQL
		if d.IsPostgres() {
			dialect = outbox.PostgreSQL
		}
		box := outbox.New(dialect, outbox.WithTable("box"))
		for _, v := range vectors.Vectors { // One after the other, since they share the table.
			d.Exec(t, "DELETE FROM {t}")
			tx, err := d.SQL.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			values, results := placeholders{}, []any{}
			for i := range v.Calls {
				results = append(results, v.Calls[i].write(t.Context(), box, tx))
			}
			require.NoError(t, tx.Commit())
			assert.Empty(t, values.differs("results", v.Results, results), v.Name)
			var now int64
			clock := "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000"
			if d.IsPostgres() {
				clock = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
			}
			require.NoError(t, d.Query(t.Context(), d.SQL, []any{&now}, nil, clock))
			found := rows(t, d)
			require.Len(t, found, len(v.Rows), v.Name)
			for i, want := range v.Rows {
				if relative, ok := want["due_ms"].(object); ok {
					due := float64(now) + relative["now_plus_ms"].(float64)
					assert.InDelta(t, due, found[i]["due_ms"], float64(slack.Milliseconds()), v.Name)
					found[i]["due_ms"] = relative
				}
				assert.Empty(t, values.differs("row", want, found[i]), v.Name)
			}
		}
	})
}
