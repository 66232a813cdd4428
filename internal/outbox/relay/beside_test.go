package relay

import (
	"fmt"
	"testing"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestCancelBesideADuplicate: a transaction that has met a duplicate and stays open holds up the end of
// that message, in MySQL's unique index, and no other's.
func TestCancelBesideADuplicate(t *testing.T) {
	t.Parallel()
	s := newScene(t, outboxtest.Open(t, schema.MySQL, testenv.MariaDB(t)))
	const all = 30
	for i := range all {
		id := fmt.Sprint("m", i)
		s.Insert(insert{ID: id, DueMs: s.Due(far)})
		s.Insert(insert{ID: id, Verb: table.VerbCancel})
	}
	tx, commit := s.Begin()
	s.DB.ExecIn(t, tx, "INSERT IGNORE INTO {t} (queue, message_id, topic, due_ms) VALUES (?, 'm7', 't', 5)", s.Orders)
	s.start()
	cancelled := func() int { return s.Count("op = 0 AND status = 3") }
	s.Eventually("the others are cancelled", func() bool { return cancelled() == all-1 })
	commit()
	s.Eventually("all are cancelled", func() bool { return cancelled() == all })
}
