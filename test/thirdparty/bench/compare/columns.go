package main

var peerColumns = []column{
	{metric: drainRate, title: "drain /s", format: perSecond, ratio: true},
	{metric: drainPace, title: "first to last /s", format: perSecond, ratio: true},
	{metric: rateLone, title: "schedule /s, 1 caller", format: perSecond, ratio: true},
	{metric: rateMany, title: "64 callers", format: perSecond, ratio: true},
	{metric: rateBatch, title: "batches of 500", format: perSecond, ratio: true},
	{metric: lateMedian, title: "late p50, ms", format: millis},
	{metric: late99, title: "p99", format: millis},
	{metric: lateMost, title: "max", format: millis},
	{metric: earliest, title: "earliest, ms too early", format: millis},
	{metric: twice, title: "delivered twice", format: whole},
	{metric: bytesEach, title: "bytes waiting", format: whole, ratio: true},
	{metric: cpuRedis, title: "CPU µs, Redis", format: micros, ratio: true},
	{metric: cpuClient, title: "client", format: micros},
	{metric: cpuBroker, title: "broker or database", format: micros},
}

var brokerColumns = []column{
	{metric: drainRate, title: "drain /s", format: perSecond, ratio: true},
	{metric: lateMedian, title: "late p50, ms", format: millis},
	{metric: late99, title: "p99", format: millis},
	{metric: lateMost, title: "max", format: millis},
	{metric: fast99, title: "p99 at 10,000/s", format: millis},
	{metric: earliest, title: "earliest, ms too early", format: millis},
	{metric: twice, title: "delivered twice", format: whole},
	{metric: cpuRedis, title: "CPU µs, Redis", format: micros},
	{metric: cpuClient, title: "bridge or client", format: micros, ratio: true},
	{metric: cpuBroker, title: "broker", format: micros, ratio: true},
}

var waitingColumns = []column{
	{metric: drainRate, title: "drain /s", format: perSecond, ratio: true},
	{metric: rateBatch, title: "schedule /s, batches of 500", format: perSecond, ratio: true},
	{metric: cpuRedis, title: "CPU µs, Redis", format: micros, ratio: true},
	{metric: cpuClient, title: "client", format: micros},
}

var burstColumns = []column{
	{metric: drainRate, title: "drain /s", format: perSecond, ratio: true},
	{metric: lateMedian, title: "late p50, ms", format: millis, ratio: true},
	{metric: late99, title: "p99", format: millis, ratio: true},
	{metric: lateMost, title: "max", format: millis},
}

const aboutPeers = `All deliver the same bodies under the same ids to a handler that does nothing. *Drain* counts from the instant at which all messages are due,
*first to last* from the first one that came. Late is measured with 1,000 messages a second; at that rate and in the drain all was scheduled before. Ours is
SDK, store and poller in the measuring process, with a sink that acknowledges a batch after a millisecond. asynq and BullMQ have 100 handlers and are otherwise as
they come (asynq looks every 5 s for what is due); BullMQ removes what is done. The patent's loop with one
shard drains a quarter of the messages. *patent* takes the one message with the least score of its shard, and sleeps 100 ms where it is not due; *naive* takes five ids of one set,
removes them before it handles them (a crash loses them), and sleeps alike. Bytes are Redis' memory, but for NATS what it stores. NATS' schedules are on
the file system; their times are given to the nanosecond, since jetstream.WithScheduleAt cuts them to the second, and fires that much early.`

const aboutNATS = `One stream on the file system. The bridge's *drain* is from the due instant until Redis holds no message any more. nats.go publishes with
PublishMsgAsync, 4,000 without an answer. All send bodies and ids (Nats-Msg-Id); the bridge adds its headers, and *our headers* are nats.go
with the same. Late is the stream's time, at 1,000 messages a second unless said otherwise; the client library publishes each message when it is due.`

const aboutRabbitMQ = `Persistent, with confirms, four connections each; the client library has 1,000 messages a connection without an answer. All send bodies and
ids (message-id); the bridge adds its headers and a timestamp, and *our headers* are amqp091-go with the same. Late is when a consumer has the message, at 1,000 messages
a second unless said otherwise; the client library publishes each message when it is due.`

const aboutKafka = `One broker, a topic of six partitions, acks=all. *To nowhere* is ours in the measuring process, with a sink that acknowledges a batch after a millisecond. kafka-go sends
up to 500 messages a request with Client.Produce, one call a partition at a time, with the id as the one header; the bridge adds its others, and *our headers* are
kafka-go with the same. Late is the broker's time, LogAppendTime, at 1,000 messages a second unless said otherwise; the client library publishes what is due.`

const aboutRedis = `Schedule, and claim with settle, beside scripts that do nothing but the same writes.`

const aboutOutbox = `Rows that a producer commits in PostgreSQL, until they are in Redis, beside a plain INSERT of the same rows and beside River's.`

const aboutWaiting = `SDK, store and poller as the bridge has them, with a sink that acknowledges a batch after a millisecond, while other messages of the same queue wait
that are due a day later. Both Redis servers stay the same in all repetitions.`

const aboutBurst = `One bridge with two queues, to NATS. In one queue very many messages are due in the same millisecond, in the other one 1,000 a second from then
on. Late are those of the other queue that are due before the burst has ended.`

const aboutPrimaries = `A bridge to Kafka, from a Redis Cluster of one and of two primaries, each with half of the eight shards. On a machine of two processors, which the broker and the
bridge share, this shows that two are no worse; more needs more machines.`
