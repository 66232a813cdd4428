// Package outbox schedules messages in a transaction of the caller's own
// database, PostgreSQL, MySQL or MariaDB: what the transaction commits is
// published, what it rolls back never was.
//
//	box := outbox.New(outbox.PostgreSQL)
//	ref, err := box.Schedule(ctx, tx, "orders", delay.Message{ID: "order-42/timeout", Topic: "order.timeout"}, delay.After(30*time.Minute))
//	err = box.Cancel(ctx, tx, "orders", ref)
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
// refused. So is a topic that the broker could never accept. [Outbox.Cancel] and
// [Outbox.Reschedule] return when they are recorded; whether they came in time,
// [Outbox.Get] tells afterwards. An operation of a higher revision always wins
// over those before it. Who schedules an identity again after its cancel begins
// another message, which no operation from before touches.
//
// # Locks
//
// No call waits for the bridge, which locks rows while it talks to Redis. Two
// transactions that schedule the same identity wait for each other, as with
// every unique index. In MySQL, use READ COMMITTED or REPEATABLE READ: under
// SERIALIZABLE its plain reads lock, too, and may wait.
//
// # Databases
//
// Every driver of database/sql does: the statements use no type of a driver's.
// Package pgxtx wraps a transaction of pgx. This package imports no database
// driver and no broker's.
package outbox
