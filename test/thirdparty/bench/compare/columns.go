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

const aboutPeers = `All deliver the same bodies under the same ids to a handler that does nothing. *Drain* counts from the instant at which all messages are due, *first to last* from
the first arrival. Lateness is measured with 1,000 messages a second; for it, and for the drain, all messages were scheduled before. Ours is SDK, store and poller in
the measuring process, with a sink that acknowledges a batch after a millisecond. asynq and BullMQ have 100 handlers and otherwise their defaults (asynq polls every
5 s); BullMQ removes finished jobs. The patent's loop with one shard drains a quarter of the messages. *patent* takes the one message with the lowest score of its
shard, and sleeps 100 ms if it is not due; *naive* takes five ids of one set, removes them before it handles them (a crash loses them), and sleeps likewise. Bytes
are Redis' memory, for NATS its storage. NATS' schedules are on the file system; their times are given to the nanosecond, because jetstream.WithScheduleAt cuts them
to the second and so fires too early.

Those that schedule faster promise less. asynq's schedule refuses a taken id as ours does, but wakes nobody: what is due soon waits for the next look, and it knows no
limit of what may wait, no change of shards, and no answer for a call that may have run. The patent's loop and the naive one add to a sorted set whatever is there
already.`

const aboutNATS = `One stream on the file system. The bridge's *drain* lasts from the due instant until Redis holds no message. nats.go publishes with PublishMsgAsync, with at most
4,000 unanswered. All send bodies and ids (Nats-Msg-Id); the bridge adds its headers, and *our headers* is nats.go with the same. *Minimal headers* is a queue that
adds the fewest. Lateness is by the stream's time, at 1,000 messages a second unless said otherwise; the client library publishes each message when it is due.`

const aboutRabbitMQ = `Persistent messages with confirms, four connections each; the client library has at most 1,000 unanswered per connection. All send bodies and ids (message-id); the
bridge adds its headers and a timestamp, and *our headers* is amqp091-go with the same. Lateness is by the consumer's receipt, at 1,000 messages a second unless said
otherwise; the client library publishes each message when it is due.`

const aboutKafka = `One broker, a topic of six partitions, acks=all. *To nowhere* is ours in the measuring process, with a sink that acknowledges a batch after a millisecond. kafka-go
sends up to 500 messages per request with Client.Produce, one call per partition at a time, with the id as the only header; the bridge adds its others, and *our
headers* is kafka-go with the same. *Minimal headers* is a queue that adds the fewest. Lateness is by the broker's LogAppendTime, at 1,000 messages a second unless
said otherwise; the client library publishes each message when it is due.`

const aboutRedis = `Schedule, and claim with settle, beside scripts that do nothing but the same writes.`

const aboutOutbox = `Rows that a producer commits in PostgreSQL, until they are in Redis, beside a plain INSERT of the same rows and beside River's.`

const aboutWaiting = `SDK, store and poller as in the bridge, with a sink that acknowledges a batch after a millisecond, while other messages of the same queue wait until the next day.
Both Redis servers stay the same in all repetitions.`

const aboutBurst = `One bridge with two queues, to NATS. In one queue very many messages are due in the same millisecond, in the other 1,000 a second from then on. Lateness is that of
the other queue's messages that are due before the burst ends.`

const aboutPrimaries = `A bridge to Kafka, from a Redis Cluster of one, two and four primaries, which share eight shards. Each primary has a tenth of a processor to itself, by a control
group of Linux, from when all messages are scheduled: so it is what limits the drain, and four leave enough of the two processors to the bridge and the broker.`

const aboutFar = `The drain to NATS, with eight shards, where each answer of Redis takes so much longer for the bridge; each shard has one claim of up to 500 messages under way.`
