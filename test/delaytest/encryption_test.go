package delaytest_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/delaytest"
	"github.com/delaybridge/delaybridge/delay/outbox"
)

func keyring(t *testing.T) *delay.Keyring {
	t.Helper()
	ring, err := delay.ParseKeyring([]byte("k1 " + strings.Repeat("0f", 32)))
	require.NoError(t, err)
	return ring
}

// TestEncryption: consumers read what a producer has encrypted, as those of a bridge do.
func TestEncryption(t *testing.T) {
	t.Parallel()
	ring := keyring(t)
	q := delaytest.New(t, "orders", delaytest.WithKeyring(ring))
	client := q.NewClient(delay.WithEncryption(ring))
	_, err := client.Schedule(t.Context(), delay.Message{ID: "id", Topic: "t", Body: []byte("body")}, delay.After(time.Hour))
	require.NoError(t, err)
	stored, err := q.Get(t.Context(), delay.Ref{ID: "id"})
	require.NoError(t, err)
	require.Error(t, stored.BodyErr, "the queue's own client has no keys")
	assert.Equal(t, "body", string(q.RequireScheduled("t", delay.After(time.Hour)).Body))
	q.Advance(time.Hour)
	p := q.RequirePublished("t")
	assert.Equal(t, "body", string(p.Body))
	assert.NotContains(t, p.Headers, "delay-sealed")
}

func TestLoadEncryptedOutbox(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *sql.DB, _ *outbox.Outbox) {
		ring := keyring(t)
		q := delaytest.New(t, "orders", delaytest.WithKeyring(ring))
		dialect := outbox.PostgreSQL
		if strings.HasSuffix(t.Name(), "mysql") {
			dialect = outbox.MySQL
		}
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		m := delay.Message{ID: "id", Topic: "t", Body: []byte("body"), Tags: []string{"x"}}
		_, err = outbox.New(dialect, outbox.WithEncryption(ring)).Schedule(t.Context(), tx, "orders", m, delay.After(time.Hour))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		q.LoadOutbox(db, "")
		q.Advance(2 * time.Hour)
		assert.Equal(t, "body", string(q.RequirePublished("t").Body))
	})
}
