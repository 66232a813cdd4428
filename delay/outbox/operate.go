package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Cancel records in the transaction that a message is cancelled. It returns at
// once, whatever the message's state; [Outbox.Get] tells afterwards whether it
// came in time. The errors are [delay.ErrInvalid] and those of the database.
func (o *Outbox) Cancel(ctx context.Context, tx Tx, queue string, ref delay.Ref) error {
	return only(o.operate(ctx, tx, queue, cancelCode, []Change{{Ref: ref}}))
}

// CancelBatch is [Outbox.Cancel] for several messages and returns one result for each, by index. An
// invalid item does not keep the others from being written. The rows are written in the order of their
// keys and ids, so that two batches never deadlock. The error is nil if every item was written.
func (o *Outbox) CancelBatch(ctx context.Context, tx Tx, queue string, refs []delay.Ref) ([]delay.Result, error) {
	changes := make([]Change, len(refs))
	for i, ref := range refs {
		changes[i].Ref = ref
	}
	return o.operate(ctx, tx, queue, cancelCode, changes)
}

// Change is one item of [Outbox.RescheduleBatch].
type Change struct {
	Ref  delay.Ref
	When delay.When
}

// Reschedule records in the transaction that a message has a new due time, with
// the limits of [Outbox.Schedule]. Its errors are those of [Outbox.Cancel].
func (o *Outbox) Reschedule(ctx context.Context, tx Tx, queue string, ref delay.Ref, when delay.When) error {
	return only(o.operate(ctx, tx, queue, rescheduleCode, []Change{{ref, when}}))
}

// RescheduleBatch is [Outbox.Reschedule] for several messages, with the results
// of [Outbox.CancelBatch].
func (o *Outbox) RescheduleBatch(ctx context.Context, tx Tx, queue string, changes []Change) ([]delay.Result, error) {
	return o.operate(ctx, tx, queue, rescheduleCode, changes)
}

// only returns the error of a batch of one.
func only(results []delay.Result, err error) error {
	if results[0].Err != nil {
		return results[0].Err
	}
	return err
}

// operation is a cancel or reschedule to insert.
type operation struct {
	ref   delay.Ref
	token string
	due   dueTime
}

// operate inserts operations of one kind.
func (o *Outbox) operate(ctx context.Context, tx Tx, queue string, op int, changes []Change) ([]delay.Result, error) {
	results := make([]delay.Result, len(changes))
	for i := range changes {
		results[i].Ref = changes[i].Ref
	}
	list, err := o.operations(tx, queue, op, changes, results)
	if tracked, ok := tx.(*Tracked); ok {
		for _, it := range list {
			tracked.forget(queue, it.ref)
		}
		tx = tracked.tx
	}
	insert := o.insertOperations
	if o.merges && op == rescheduleCode && canRead(tx) {
		list, insert = lastOfEach(list), o.mergeReschedules
	}
	for chunk := range slices.Chunk(list, insertRows) {
		if err != nil {
			break
		}
		if err = insert(ctx, tx, queue, op, chunk); err != nil {
			err = o.failed(string(opNames[op]), err)
		}
	}
	if err == nil && len(list) > 0 {
		if err = o.wake(ctx, tx); err != nil {
			err = o.failed("notify", err)
		}
	}
	if err == nil {
		return results, firstError(results)
	}
	for i := range results {
		if results[i].Err == nil {
			results[i].Err = err
		}
	}
	return results, err
}

// operations returns the operations of the valid changes, in the order of their identities.
func (o *Outbox) operations(tx Tx, queue string, op int, changes []Change, results []delay.Result) ([]operation, error) {
	if err := o.ready(tx, queue); err != nil {
		return nil, err
	}
	list := make([]operation, 0, len(changes))
	for _, i := range inOrder(results) {
		it := operation{ref: changes[i].Ref, token: processTokens.next(time.Now())}
		var err error
		if op == rescheduleCode {
			it.due, err = resolve(changes[i].When.For(it.ref))
		}
		if invalid := message.CheckIdentity(it.ref.ID, it.ref.Key); err == nil && invalid != nil {
			err = fmt.Errorf("%w: %w", delay.ErrInvalid, invalid)
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		list = append(list, it)
	}
	return list, nil
}

// insertOperations inserts a chunk. In MySQL it reads the messages' rows first, because a
// SELECT inside the INSERT would lock what it reads, and so wait for the relay.
func (o *Outbox) insertOperations(ctx context.Context, tx Tx, queue string, op int, list []operation) error {
	target, targets := "("+o.standingID()+")", make([]sql.NullInt64, len(list))
	if o.dialect == MySQL {
		identities := make([]any, 0, 2*identityColumns*len(list))
		for _, it := range list {
			identities = append(identities, twice(queue, it.ref)...)
		}
		var err error
		target = "?"
		if targets, err = o.look(ctx, tx, o.standingID(), len(list), identities); err != nil {
			return err
		}
	}
	return o.insertAbout(ctx, tx, queue, op, list, target, targets)
}

// insertAbout inserts operations with their targets.
func (o *Outbox) insertAbout(ctx context.Context, tx Tx, queue string, op int, list []operation, target string, targets []sql.NullInt64) error {
	const columns = 6 // with an argument
	values, args := make([]string, len(list)), make([]any, 0, (columns+2*identityColumns)*len(list))
	for i, it := range list {
		values[i] = fmt.Sprintf("(%[1]s, %[1]s, %[1]s, %[2]d, %[1]s, %[3]s, %[4]s, %[5]s)", o.text(), op, o.dueSQL(it.due), o.merged(op, it.due), target)
		args = append(args, queue, it.ref.Key, it.ref.ID, it.token, it.due.ms)
		if o.dialect == MySQL {
			args = append(args, targets[i])
		} else {
			args = append(args, twice(queue, it.ref)...)
		}
	}
	_, err := o.exec(ctx, tx, "INSERT INTO "+o.table+operationColumns+" VALUES "+strings.Join(values, ", "), args)
	return err
}

const operationColumns = " (queue, message_key, message_id, op, token, due_ms, revision, target)"

// twice returns an identity as the arguments of [Outbox.standingID].
func twice(queue string, ref delay.Ref) []any {
	return []any{queue, ref.Key, ref.ID, queue, ref.Key, ref.ID}
}
