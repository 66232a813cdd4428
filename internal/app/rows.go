package app

import (
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// rowSettler tells rows of outboxes what became of their messages. Its methods
// do not block.
type rowSettler interface {
	// Notify says that a shard's ledger has new entries.
	Notify(queue string, shard int)
	// Acknowledged gets messages that the broker has acknowledged too late for Redis.
	Acknowledged(queue string, rows []store.SettledRow)
}

// tellRows has the queue tell the settler what becomes of rows' messages, and the
// auditor that Redis has lost some. It is called before the queue starts.
func (r *queueRunner) tellRows(settler rowSettler, reborn func(queue string)) {
	name := r.queue.Name()
	r.rows, r.reborn = settler, func() { reborn(name) }
	r.queue.WithLedger(func(shard int) { settler.Notify(name, shard) })
}

// lateAcks is what the poller calls for acknowledgements that came too late.
func (r *queueRunner) lateAcks() func([]message.Claimed) {
	if r.rows == nil {
		return nil
	}
	return func(acked []message.Claimed) {
		rows := make([]store.SettledRow, len(acked))
		for i, m := range acked {
			rows[i] = store.SettledRow{Token: m.Token, ID: m.ID, Key: m.Key, What: store.FatePublished}
		}
		r.rows.Acknowledged(r.queue.Name(), rows)
	}
}
