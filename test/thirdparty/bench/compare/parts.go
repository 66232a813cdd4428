package main

import (
	"context"
	"fmt"
)

const (
	rateLone   metric = "schedule, 1 caller"
	rateMany   metric = "schedule, 64 callers"
	rateBatch  metric = "schedule, batches"
	drainRate  metric = "drain"
	drainPace  metric = "drain, first to last"
	lateMedian metric = "late p50"
	late99     metric = "late p99"
	lateMost   metric = "late max"
	fast99     metric = "late p99, 10,000/s"
	earliest   metric = "early"
	twice      metric = "twice"
	bytesEach  metric = "bytes each"
	cpuRedis   metric = "CPU of Redis"
	cpuClient  metric = "CPU of the client"
	cpuBroker  metric = "CPU of the broker"
)

// alike is what the name of a client library ends with where it publishes the bridge's headers too.
const alike = ", our headers"

// few is what the name of ours ends with where the queue has few headers.
const few = ", minimal headers"

// Names of contenders. Those that begin with oursName are ours.
const (
	oursName     = "delaybridge"
	toNATS       = oursName + " to NATS"
	fewNATS      = toNATS + few
	limitNATS    = "nats.go"
	alikeNATS    = limitNATS + alike
	toQuorum     = oursName + " to a quorum queue"
	limitQuorum  = "amqp091-go to a quorum queue"
	alikeQuorum  = limitQuorum + alike
	toClassic    = oursName + " to a classic queue"
	limitClassic = "amqp091-go to a classic queue"
	alikeClassic = limitClassic + alike
	toKafka      = oursName + " to Kafka"
	fewKafka     = toKafka + few
	toNowhere    = oursName + " to nowhere"
	limitKafka   = "kafka-go"
	alikeKafka   = limitKafka + alike
	nameFew      = oursName + ", few waiting"
	nameMany     = oursName + ", many waiting"
	nameSteady   = "1,000 a second alone"
	nameBurst    = "1,000 a second beside a burst"
	nameDrain    = "a drain alone"
	nameNear     = oursName + ", Redis nearby"
	nameZone     = oursName + ", Redis 5 ms away"
	nameFar      = oursName + ", Redis 50 ms away"
	nameOne      = oursName + ", one primary"
	nameTwo      = oursName + ", two primaries"
	nameFour     = oursName + ", four primaries"
)

// parts are all that can be measured, in the order of the document.
var parts = []part{
	{
		name: "peers", title: "Beside other ways to deliver later", about: aboutPeers,
		columns: peerColumns, pairs: against(oursName, rivals), open: openPeers,
	},
	{
		name: "nats", title: "To NATS JetStream", about: aboutNATS,
		columns: brokerColumns, open: openNATS,
		pairs: []pair{
			{name: toNATS, base: alikeNATS, goals: leanClient},
			{name: toNATS, base: limitNATS},
			{name: fewNATS, base: toNATS},
			{name: fewNATS, base: limitNATS},
		},
	},
	{
		name: "rabbitmq", title: "To RabbitMQ", about: aboutRabbitMQ, columns: brokerColumns, open: openRabbitMQ,
		pairs: []pair{
			{name: toQuorum, base: alikeQuorum, goals: leanClient},
			{name: toQuorum, base: limitQuorum},
			{name: toClassic, base: alikeClassic, goals: leanClient},
			{name: toClassic, base: limitClassic},
		},
	},
	{
		name: "kafka", title: "To Kafka", about: aboutKafka,
		columns: brokerColumns, open: openKafka,
		pairs: []pair{
			{name: toKafka, base: toNowhere},
			{name: toKafka, base: alikeKafka, goals: leanClient},
			{name: toKafka, base: limitKafka},
			{name: fewKafka, base: toKafka},
			{name: fewKafka, base: limitKafka},
		},
	},
	{name: "redis", title: "Beside the least that Redis could do", about: aboutRedis, text: also("./redis", "-aof")},
	{name: "outbox", title: "From the database to Redis", about: aboutOutbox, text: also("./outbox")},
	{
		name: "waiting", title: "Beside many that wait", about: aboutWaiting, columns: waitingColumns, open: openWaiting,
		pairs: []pair{{name: nameMany, base: nameFew, goals: map[metric]float64{drainRate: 0.93, rateBatch: 0.8}}},
	},
	{
		name: "burst", title: "Very many due in one millisecond", about: aboutBurst, columns: burstColumns, open: openBurst,
		pairs: []pair{{name: nameBurst, base: nameSteady, goals: map[metric]float64{late99: -2}}, {name: nameBurst, base: nameDrain}},
	},
	{
		name: "far", title: "A Redis that is far away", about: aboutFar, columns: brokerColumns, open: openFar,
		pairs: []pair{{name: nameZone, base: nameNear}, {name: nameFar, base: nameNear}},
	},
	{
		name: "primaries", title: "More primaries of Redis", about: aboutPrimaries, columns: brokerColumns, open: openPrimaries,
		pairs: []pair{{name: nameTwo, base: nameOne, goals: doubled}, {name: nameFour, base: nameTwo, goals: doubled}},
	},
}

// leanClient: the bridge should not take much more than the client library.
var leanClient = map[metric]float64{cpuClient: -1.2}

// doubled: twice as many primaries should drain nearly twice as fast.
var doubled = map[metric]float64{drainRate: 1.8}

func partNames() []string {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.name
	}
	return names
}

// also runs another program of this module.
func also(args ...string) func(context.Context, *bench) (string, error) {
	return func(ctx context.Context, b *bench) (string, error) {
		args := append([]string{"run", "-C", "test/thirdparty/bench"}, args...)
		args = append(args, fmt.Sprintf("-repeat=%d", b.repeat))
		if b.quick {
			args = append(args, fmt.Sprintf("-count=%d", b.count))
		}
		return b.output(ctx, "go", args...)
	}
}
