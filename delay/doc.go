// Package delay schedules messages that the bridge publishes to a broker when
// they are due: "deliver in 30 minutes, unless cancelled".
//
//	client, err := delay.NewClient(rdb, "orders")
//	res, err := client.Schedule(ctx, delay.Message{ID: "order-42/timeout", Topic: "order.timeout"}, delay.After(30*time.Minute))
//	err = client.Cancel(ctx, res.Ref)
//
// An accepted message is published at least once, never before its due time by Redis' clock, and is
// removed only after the broker acknowledged it, or it was cancelled, or it went to the dead letters
// with a reason. Duplicates carry the same header delay-uid, see [ReadHeaders]. Cancel and
// reschedule answer truthfully: done, too late, maybe published, or not found.
//
// # Identity
//
// A message is identified by its Key and ID together. Messages of one Key are
// published in due order. After a message was published or cancelled, its
// identity may be used again.
//
// # Calls and their answers
//
// Each call takes effect once, even if a reply is lost and the call is sent
// again. Distinguish its errors with errors.Is; see the variables below. Every
// call ends by its ctx's deadline, and after [WithTimeout] at the latest; if its
// ctx is cancelled, it ends within two seconds plus the wait of [WithDurability].
// Whatever a call has answered, it changes nothing after its end; after
// [ErrUnknown], [Repeat] continues the same call.
//
// Concurrent calls of one client share round trips to Redis, and a lone call
// never waits: see [WithCoalescing]. For many messages at once,
// [Client.ScheduleBatch] is the cheapest.
//
// [WithEncryption] hides bodies from readers of Redis. [WithLogger] and
// [WithTracerProvider] make a producer's calls observable.
//
// Package delaytest tests producers without a server.
//
// The package talks to Redis only, and imports no broker driver.
package delay
