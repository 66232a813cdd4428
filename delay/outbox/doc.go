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
// [Outbox.Schedule] knows the table only: another message of that identity that
// Redis has, but the table has not, is found by the bridge, and the row is then
// refused. So is a topic that the broker could never take, where [Outbox.Schedule]
// does not know the queue's broker, see [WithSink]. [Outbox.Cancel] and
// [Outbox.Reschedule] return when they are recorded; whether they came in time,
// [Outbox.Get] tells afterwards. An operation of a higher revision always wins
// over those before it. Who schedules an identity again after its cancel begins
// another message, which no operation from before touches.
//
// # One message in the place of another
//
// What Schedule does with an identity that is taken, [WithConflict] says, or the
// [delay.Request] of a batch. With [delay.Replace], and if the transaction sees a cancel
// of the message that is there, its own too, the new message is written as one that takes
// the place of the other: the bridge cancels that first. While it is being published the new
// one waits, whatever its due time, until that has ended. So at no moment both are on their way,
// and the old one's row says how it has ended: cancelled, with a reason where a copy may be
// out, or published. Cancels and reschedules that are written from then on are about the
// new one, a message with a token and a [delay.HeaderUID] of its own.
//
// # Locks
//
// No call waits for the bridge, which locks rows while it talks to Redis. Two
// transactions that schedule the same identity wait for each other, as with
// every unique index.
//
// MySQL locks more. So Schedule looks first, with a plain read, and inserts only
// what is not there: a duplicate then makes no other identity wait. Some remain
// that lock their neighbours in the index until the transaction ends: one that is
// committed during the call or after the snapshot, and one of a message that is due
// where the bridge has its row or the server is a MySQL before 8.0.22 or a MariaDB
// with innodb_snapshot_isolation. A duplicate of a message that is due keeps the
// bridge from its row as long, so that transaction should end soon.
//
// Under REPEATABLE READ, the look begins the snapshot where nothing has before, and
// a message that was cancelled before it was due, after the snapshot, still counts
// as there. Do not use SERIALIZABLE in MySQL: there plain reads lock, too, wait, and
// make transactions deadlock which schedule different identities. Who must, gives a
// [Tx] that has ExecContext only. Schedule does not look then, and each duplicate
// locks its neighbours.
//
// # Databases
//
// Every driver of database/sql does: the statements use no type of a driver's.
// Package pgxtx wraps a transaction of pgx. This package imports no database
// driver and no broker's.
package outbox
