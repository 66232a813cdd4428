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
// Each call takes effect once, even if a reply is lost and the call is sent
// again. Its errors are distinguished with errors.Is; see the variables below.
// Every call ends by its ctx' deadline, and after [WithTimeout] at the latest;
// when its ctx is cancelled, within two seconds and the wait of [WithDurability].
// A call that has ended changes nothing any more, whatever it has answered; after
// [ErrUnknown], [Repeat] continues the same call.
//
// Concurrent calls of one client travel to Redis together, and a lone call never
// waits: see [WithCoalescing]. Many messages at once cost least with
// [Client.ScheduleBatch].
//
// [WithEncryption] hides bodies from readers of Redis. [WithLogger] and
// [WithTracerProvider] make a producer's calls visible.
//
// Package delaytest tests producers without a server.
//
// The package talks to Redis only. It imports no broker's driver.
package delay
