// Package delay schedules messages that the bridge publishes to a broker when
// they are due: "deliver in 30 minutes, unless cancelled".
//
//	client, err := delay.NewClient(rdb, "orders")
//	res, err := client.Schedule(ctx, delay.Message{ID: "order-42/timeout", Topic: "order.timeout"}, delay.After(30*time.Minute))
//	err = client.Cancel(ctx, res.Ref)
//
// An accepted message is published at least once, never before its due time by
// Redis' clock, and is removed only after the broker acknowledged it, or it was
// cancelled, or it went to the dead letters with a reason. Duplicates carry the
// same header delay-uid, see [ReadHeaders]. Cancel and reschedule answer truthfully: done, too late,
// maybe published, or not found.
//
// # Identity
//
// A message is identified by its Key and ID together. Messages of one Key are
// published in due order. An identity that was published or cancelled is free
// again.
//
// # Calls and their answers
//
// Each call takes effect once, also if a reply is lost and the call goes out
// again. Its errors can be told apart with errors.Is; see the variables below.
// Every call ends by its ctx' deadline, and after [WithTimeout] at the latest;
// when its ctx is cancelled, within two seconds and what [WithDurability] waits.
// A call that has ended changes nothing any more, whatever it has answered; one
// that has ended with [ErrUnknown] goes on as the same call with [Repeat].
//
// Concurrent calls of one client travel to Redis together, and a lone one waits for
// nobody: see [WithCoalescing]. Many messages at once cost least with
// [Client.ScheduleBatch].
//
// [WithEncryption] hides bodies from readers of Redis. [WithLogger] and
// [WithTracerProvider] show what a producer's calls meet.
//
// Package delaytest tests producers without a server.
//
// The package talks to Redis only. It imports no broker's driver.
package delay
