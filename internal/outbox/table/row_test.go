package table_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// FuzzRow: anybody may write a row. Whatever it has, it is refused, or makes a message that Redis can keep and
// give back as it was.
func FuzzRow(f *testing.F) {
	const token = "~AbCdEfGhIjKlMnO"
	f.Add(uint8(0), "a", "", "t", `{"a": "b"}`, []byte("x"), token, int64(1_790_000_000_000))
	f.Add(uint8(3), "a", "k", "t.u", "null", []byte(nil), token, int64(0))
	f.Add(uint8(1), "", "k\x00", "", "[[[[", []byte("\xff"), "", int64(-1))
	f.Add(uint8(0), "a", "", "t", `{"a": 1, "a": "b"}`, []byte("x"), token, int64(table.MaxDueMs))
	sinks := []message.SinkType{message.Kafka, message.RabbitMQ, message.NATS, message.Redis}
	f.Fuzz(func(t *testing.T, verb uint8, id, key, topic, headers string, body []byte, token string, dueMs int64) {
		row := table.Row{Verb: table.Verb(verb % 4), Token: token, DueMs: dueMs}
		row.ID, row.Key = id, key
		row.Content.Topic, row.Content.Headers, row.Content.Body = topic, sql.NullString{String: headers, Valid: headers != ""}, body
		_ = row.CheckOperation()
		for _, sink := range sinks {
			made, err := row.Message(sink, 1<<20)
			if err != nil {
				continue
			}
			require.NoError(t, message.CheckIdentity(made.ID, made.Key))
			var kept message.Message
			require.NoError(t, kept.Decode(message.FormatVersion+"1790000000123"+string(message.Encode(token, made))))
			require.Equal(t, topic, kept.Topic)
			require.Equal(t, string(body), string(kept.Body), "as it was")
			require.Len(t, kept.Headers, len(made.Headers))
			for name, value := range made.Headers {
				require.Equal(t, value, kept.Headers[name])
			}
		}
	})
}
