// Package outbox schedules messages in a transaction of the caller's own
// database (PostgreSQL, MySQL or MariaDB): if the transaction commits, its
// messages are published; if it rolls back, they never existed.
//
//	box := outbox.New(outbox.PostgreSQL)
//	ref, err := box.Schedule(ctx, tx, "orders", delay.Message{ID: "order-42/timeout", Topic: "order.timeout"}, delay.After(30*time.Minute))
//	err = box.Cancel(ctx, tx, "orders", ref) // or CancelBatch, as there are ScheduleBatch and RescheduleBatch
//	row, err := box.Get(ctx, tx, "orders", ref)
//
// The calls write rows into a table (see [WithTable]) that "bridge outbox migrate
// up" makes. A bridge with that database in its configuration reads them, brings
// the messages to Redis before they are due, and records in each row how it
// ended. Producers in other languages insert into the table themselves: queue,
// message_id, topic, body and due_ms are enough.
//
// # Answers
//
// [Outbox.Schedule] sees only the table. If Redis has a message of that identity
// that the table does not have, the bridge refuses the row later. The bridge also
// refuses a topic that the broker could never accept, if [Outbox.Schedule] does
// not know the queue's broker, see [WithSink]. [Outbox.Cancel] and
// [Outbox.Reschedule] return as soon as they are recorded; [Outbox.Get] tells
// afterwards whether they came in time. An operation always wins over those with a
// lower revision. Scheduling an identity again after its cancel makes a new
// message, which no earlier operation affects.
//
// # Replacing a message
//
// [WithConflict], or the [delay.Request] of a batch, says what Schedule does if the identity is
// taken. With [delay.Replace], or if the transaction sees a cancel of the existing message (its
// own included), the new message is written as a replacement: the bridge cancels the old one
// first. While the old one is being published, the new one waits, whatever its due time. So the
// two are never under way together, and the old one's row says how it ended: cancelled, with a
// reason if a copy may be out, or published. Later cancels and reschedules apply to the new one,
// which has a token and a [delay.HeaderUID] of its own.
//
// # Locks
//
// The bridge locks rows while it talks to Redis, but no call waits for those
// locks. Two transactions that schedule the same identity wait for each other,
// as with every unique index.
//
// MySQL locks more. So Schedule first reads without a lock and inserts only missing
// identities, and a duplicate makes no other identity wait. Some duplicates still lock
// their neighbours in the index until the transaction ends: one that is committed during
// the call or after the snapshot, and one of a due message if the bridge has its row or the
// server is a MySQL before 8.0.22 or a MariaDB with innodb_snapshot_isolation. A duplicate
// of a due message locks the bridge out of its row for that time, so such a transaction
// should end soon.
//
// In MySQL, scheduling an identity again locks what is behind it in the index, up to the next
// identity, if the server still has the entry of the message that has just ended. It has it for
// as long as a transaction anywhere may read it. Until the end of the transaction, others wait who
// schedule an identity in between, or cancel or reschedule the next one; the bridge ends that one's
// message later.
//
// Under REPEATABLE READ, that read takes the snapshot if the transaction has none yet, and a
// message that was cancelled after the snapshot and before it was due still counts as
// existing. Do not use SERIALIZABLE in MySQL: its plain reads lock, too, so transactions that
// schedule different identities deadlock. If you must, pass a [Tx] without QueryRowContext:
// then Schedule does not read first, and each duplicate locks its neighbours.
//
// # Databases
//
// Every driver of database/sql works, because the statements use no driver's
// types. Package pgxtx wraps a transaction of pgx. This package imports no
// database driver and no broker driver.
package outbox
