package outbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
)

// TestEncryption writes a row whose body is not clear, and whose headers name the key.
func TestEncryption(t *testing.T) {
	forEach(t, func(t *testing.T, db *database) {
		ring, err := delay.ParseKeyring([]byte("k1 " + strings.Repeat("0f", 32)))
		require.NoError(t, err)
		box := outbox.New(db.dialect, outbox.WithEncryption(ring))
		tx := db.begin(t)
		_, err = box.Schedule(t.Context(), tx, "orders", delay.Message{ID: "id", Topic: "t", Body: []byte("nobody's affair")}, delay.After(time.Hour))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		var headers string
		var body []byte
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT headers, body FROM delay_outbox").Scan(&headers, &body))
		assert.JSONEq(t, `{"delay-sealed": "k1"}`, headers)
		assert.Len(t, body, len("nobody's affair")+41)
		assert.NotContains(t, string(body), "affair")

		tx = db.begin(t)
		_, err = outbox.New(db.dialect, outbox.WithEncryption(nil)).Schedule(t.Context(), tx, "orders", delay.Message{Topic: "t"}, delay.After(time.Hour))
		require.ErrorIs(t, err, delay.ErrInvalid)
	})
}
