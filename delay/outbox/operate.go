package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Cancel records in the transaction that a message shall not be published. It
// returns at once, whatever the message's state; [Outbox.Get] tells afterwards
// whether it came in time. The errors are [delay.ErrInvalid] and those of the
// database.
func (o *Outbox) Cancel(ctx context.Context, tx Tx, queue string, ref delay.Ref) error {
	return o.operate(ctx, tx, queue, ref, cancelCode, due{})
}

// Reschedule records in the transaction that a message shall have another due
// time, as [Outbox.Schedule] takes it. It answers as [Outbox.Cancel].
func (o *Outbox) Reschedule(ctx context.Context, tx Tx, queue string, ref delay.Ref, when delay.When) error {
	due, err := resolve(when.For(ref))
	if err != nil {
		return err
	}
	return o.operate(ctx, tx, queue, ref, rescheduleCode, due)
}

// operate inserts an operation.
func (o *Outbox) operate(ctx context.Context, tx Tx, queue string, ref delay.Ref, op int, d due) error {
	if err := o.ready(tx, queue); err != nil {
		return err
	}
	if err := message.CheckIdentity(ref.ID, ref.Key); err != nil {
		return fmt.Errorf("%w: %w", delay.ErrInvalid, err)
	}
	if tracked, ok := tx.(*Tracked); ok {
		tracked.forget(queue, ref)
		tx = tracked.tx
	}
	token := processTokens.next(time.Now())
	insert := "INSERT INTO " + o.table + " (queue, message_key, message_id, op, token, due_ms, target) "
	values := fmt.Sprintf("%[1]s, %[1]s, %[1]s, %[2]d, %[1]s, %[3]s, ", o.text(), op, o.dueSQL(d))
	args := []any{queue, ref.Key, ref.ID, token, d.ms}
	var err error
	if o.dialect == PostgreSQL {
		args = append(args, queue, ref.Key, ref.ID, queue, ref.Key, ref.ID)
		_, err = o.exec(ctx, tx, insert+"SELECT "+values+"("+o.standingID()+")", args)
	} else {
		err = o.insertOperation(ctx, tx, insert+"VALUES ("+values+"?)", args)
	}
	if err == nil {
		err = o.wake(ctx, tx)
	}
	if err != nil {
		return o.failed(string(opNames[op]), err)
	}
	return nil
}

// insertOperation reads the message's row and then inserts the operation. In MySQL,
// a SELECT inside the INSERT would lock what it reads, and so wait for the relay.
func (o *Outbox) insertOperation(ctx context.Context, tx Tx, insert string, args []any) error {
	var target sql.NullInt64
	identity := args[:identityColumns]
	err := o.scanRow(ctx, tx, o.standingID(), slices.Concat(identity, identity), &target)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	_, err = o.exec(ctx, tx, insert, append(args, target))
	return err
}
