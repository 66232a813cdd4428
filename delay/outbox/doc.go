// Package outbox schedules messages in a transaction of the caller's own
// database, PostgreSQL, MySQL or MariaDB: what the transaction commits is
// published, what it rolls back never was.
//
//	box := outbox.New(outbox.PostgreSQL)
//	ref, err := box.Schedule(ctx, tx, "orders", delay.Message{ID: "order-42/timeout", Topic: "order.timeout"}, delay.After(30*time.Minute))
//	err = box.Cancel(ctx, tx, "orders", ref) // or CancelBatch, as there are ScheduleBatch and RescheduleBatch
//	row, err := box.Get(ctx, tx, "orders", ref)
//
// The calls write rows into a table (see [WithTable]) that "bridge outbox migrate
// up" makes. A bridge with that database in its configuration takes them from
// there, brings them to Redis before they are due, and records in the row what
// became of it. Producers in other languages insert into the table themselves:
// queue, message_id, topic, body and due_ms are enough.
//
// # Answers
//
// [Outbox.Schedule] sees only the table. If Redis has another message of that
// identity that the table does not have, the bridge finds it and refuses the row.
// It also refuses a topic that the broker could never take, if [Outbox.Schedule]
// does not know the queue's broker, see [WithSink]. [Outbox.Cancel] and
// [Outbox.Reschedule] return when they are recorded; [Outbox.Get] tells afterwards
// whether they came in time. An operation of a higher revision always wins over
// those before it. To schedule an identity again after its cancel makes another
// message, which no earlier operation touches.
//
// # One message in the place of another
//
// [WithConflict], or the [delay.Request] of a batch, says what Schedule does with an identity
// that is taken. With [delay.Replace], or if the transaction sees a cancel of the existing
// message (its own included), the new message is written as a replacement: the bridge cancels
// the old one first. While the old one is being published, the new one waits, whatever its due
// time. So they are never both on their way, and the old one's row says how it ended: cancelled,
// with a reason if a copy may be out, or published. Later cancels and reschedules are about the
// new one, a message with a token and a [delay.HeaderUID] of its own.
//
// # Locks
//
// No call waits for the bridge, which locks rows while it talks to Redis. Two
// transactions that schedule the same identity wait for each other, as with
// every unique index.
//
// MySQL locks more. So Schedule first reads without a lock, and inserts only missing
// identities: then a duplicate makes no other identity wait. Some duplicates still lock
// their neighbours in the index until the transaction ends: one that is committed during
// the call or after the snapshot, and one of a due message if the bridge has its row or the
// server is a MySQL before 8.0.22 or a MariaDB with innodb_snapshot_isolation. A duplicate
// of a due message keeps the bridge from its row for that time, so such a transaction
// should end soon.
//
// Under REPEATABLE READ, that read begins the snapshot if nothing did before, and a message
// that was cancelled after the snapshot, before it was due, still counts as existing. Do not
// use SERIALIZABLE in MySQL: there plain reads lock, too, and transactions that schedule
// different identities deadlock. If you must, pass a [Tx] that has ExecContext only: then
// Schedule does not read first, and each duplicate locks its neighbours.
//
// # Databases
//
// Every driver of database/sql does: the statements use no type of a driver's.
// Package pgxtx wraps a transaction of pgx. This package imports no database
// driver and no broker's.
package outbox
