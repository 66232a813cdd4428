// Package keys names the keys of a queue; no other package builds one. The
// comment of package store says what each holds.
package keys

import (
	"strconv"
	"strings"
)

// Queue is a queue by its name, under the prefix of its keys.
type Queue struct{ Prefix, Name string }

// Layout is the layout's key, and the channel that announces its changes.
func (q Queue) Layout() string { return q.Prefix + ":" + q.Name + ":layout" }

// Instances is the instances' key, and the channel that announces their coming and going.
func (q Queue) Instances() string { return q.Prefix + ":" + q.Name + ":instances" }

// Jobs is the jobs' key.
func (q Queue) Jobs() string { return q.Prefix + ":" + q.Name + ":jobs" }

// Audit is the key of the operators' changes.
func (q Queue) Audit() string { return q.Prefix + ":" + q.Name + ":audit" }

// AuditCalls is the key of changes and reads of single messages by the API, and of refusals.
func (q Queue) AuditCalls() string { return q.Audit() + ":calls" }

// Paused is the key of the pauses. Its hash tag puts it beside the instances' key, so
// that one script can use both.
func (q Queue) Paused() string { return q.Prefix + ":{" + q.Instances() + "}:paused" }

// Rates is the key of the queue's rates and their use. It is beside the instances' key, so
// that a script can check that the caller is a live instance.
func (q Queue) Rates() string { return q.Prefix + ":{" + q.Instances() + "}:rates" }

// Recurring is the key of the recurring schedules. It is beside the instances' key, on whose
// channel a change of it is announced.
func (q Queue) Recurring() string { return q.Prefix + ":{" + q.Instances() + "}:recurring" }

// Once is the key of the record of that name, see Once in package store. Its hash tag is like a shard's,
// so that the rights for the shards' keys cover it and the records spread over a Cluster.
func (q Queue) Once(name string) string { return q.Prefix + ":{" + q.Name + ":" + name + "}:once" }

// Turns is the key of the turns of that name, see package turns; its hash tag is like that of [Queue.Once].
func (q Queue) Turns(name string) string { return q.Prefix + ":{" + q.Name + ":" + name + "}:turns" }

// Declared is the key of the queues that were declared by the API: one for the prefix, whatever the queue's name.
func (q Queue) Declared() string { return q.Prefix + ":{queues}" }

// Shard are the keys of one shard.
type Shard struct {
	Due, Msg, Claims, Deadlines, Attempts string
	Gone, GoneTTL, Dead, DeadMsg          string
	Holder, Meta, Wake, Settled, Routes   string
	Tags                                  string
}

// Shard names the keys of the shard of that number.
func (q Queue) Shard(number int) Shard {
	tag := q.Prefix + ":{" + q.Name + ":" + strconv.Itoa(number) + "}:"
	return Shard{
		Due: tag + "due", Msg: tag + "msg", Claims: tag + "claims", Deadlines: tag + "deadlines",
		Attempts: tag + "attempts", Gone: tag + "gone", GoneTTL: tag + "gonettl",
		Dead: tag + "dead", DeadMsg: tag + "deadmsg", Holder: tag + "holder", Meta: tag + "meta", Wake: tag + "wake",
		Settled: tag + "settled", Routes: tag + "routes", Tags: tag + "tags",
	}
}

// History names the keys of the shard's history, if its queue keeps one.
func (s *Shard) History() (ended, ends string) {
	tag := strings.TrimSuffix(s.Due, "due")
	return tag + "ended", tag + "ends"
}

// Shards names the keys of the first n shards.
func (q Queue) Shards(count int) []Shard {
	shards := make([]Shard, count)
	for number := range shards {
		shards[number] = q.Shard(number)
	}
	return shards
}
