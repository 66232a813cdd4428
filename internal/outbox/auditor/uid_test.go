package auditor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
)

// TestAuditKeepsUID: what is put back is named as before the loss, whether or not a
// reschedule had given its row another token; its headers are its own otherwise.
func TestAuditKeepsUID(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		const first = "~the-first-token"
		moved := s.Stored("moved", far, func(i *insert) { i.Headers = `{"a":"b"}` })
		plain := s.Stored("plain", far)
		s.DB.Exec(t, "UPDATE {t} SET uid = ? WHERE id = ?", first, moved)
		s.Lose()
		require.Equal(t, Counts{Looked: 2, PutBack: 2}, s.audit(true, false))
		found := s.Find("k", "moved")
		require.Equal(t, first, found.UID())
		require.Equal(t, map[string]string{"a": "b", message.HeaderUID: first}, found.Headers)
		row, _ := s.Read(plain)
		require.Equal(t, row.Token, s.Find("k", "plain").UID())
		s.Sound()
	})
}
