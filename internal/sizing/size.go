package sizing

import (
	"math"
	"time"
)

// Sizes are the answer to a plan. Bytes are bytes, CPU is in processors that are busy.
type Sizes struct {
	// Waiting is how many messages wait in Redis on average, WaitingMost at the end of an outage.
	Waiting     int64   `json:"waiting"`
	WaitingMost int64   `json:"waiting_most"`
	Memory      Memory  `json:"memory"`
	Disk        Disk    `json:"disk"`
	Replica     Replica `json:"replica"`
	// Budget is for queues.*.budget.
	Budget int64 `json:"budget_bytes"`
	Shards int   `json:"shards"`
	// Primaries is more than 1 where one Redis could not take the peak.
	Primaries   int          `json:"primaries"`
	CPU         CPU          `json:"cpu"`
	Connections Connections  `json:"connections"`
	Outbox      *OutboxSizes `json:"outbox,omitempty"`
}

// Memory is that of Redis, of all primaries together.
type Memory struct {
	Message  float64 `json:"message_bytes"`
	Used     int64   `json:"used_bytes"`
	UsedMost int64   `json:"used_most_bytes"`
	// Maxmemory is what to set; Host what the machines need while Redis rewrites its file under this
	// load, HostWorst if every page is written meanwhile.
	Maxmemory int64 `json:"maxmemory_bytes"`
	Host      int64 `json:"host_bytes"`
	HostWorst int64 `json:"host_worst_bytes"`
}

// Disk is that of Redis with appendonly, of all primaries together; each replica has as much.
type Disk struct {
	PerSecond int64 `json:"appended_bytes_per_second"`
	// Most is while the file is rewritten: the old one, and the new.
	Most         int64   `json:"most_bytes"`
	RewriteEvery float64 `json:"rewrite_every_s"`
	Rewrite      float64 `json:"rewrite_s"`
}

// Replica is how long one primary takes to come back, and a replica to follow it; without the network.
type Replica struct {
	Reload float64 `json:"reload_s"`
	Sync   float64 `json:"sync_s"`
	// Backlog is for repl-backlog-size: a replica that was away for a minute needs no full copy.
	Backlog int64 `json:"backlog_bytes"`
}

// CPU is at the peak.
type CPU struct {
	RedisSchedule float64 `json:"redis_schedule"`
	RedisPublish  float64 `json:"redis_publish"`
	RedisRows     float64 `json:"redis_rows,omitempty"`
	Bridge        float64 `json:"bridge"`
	Database      float64 `json:"database,omitempty"`
}

// Redis is that of all its stages.
func (c CPU) Redis() float64 { return c.RedisSchedule + c.RedisPublish + c.RedisRows }

// Connections are the most that one bridge opens.
type Connections struct {
	Redis    int `json:"redis"`
	Database int `json:"database,omitempty"`
}

// OutboxSizes are the rows of the table.
type OutboxSizes struct {
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`
}

const (
	micro = 1e-6

	// emptyRedis is a Redis without a message, with its clients.
	emptyRedis = 32 << 20
	// reserve is for claims, tombstones, scripts, and an estimate that is not exact.
	reserve = 1.1
	// fragmented is what the allocator takes beyond what is used.
	fragmented = 1.1
	// smallestAOF is auto-aof-rewrite-min-size: below, Redis does not rewrite.
	smallestAOF = 64 << 20
	// absence is for how long a replica may be away without a full copy.
	absence = time.Minute
	// busiest is how much of its one processor a Redis may use at the peak: it forks and expires, too.
	busiest = 0.6
	// usualShards is enough for one Redis, and lets two bridges share them; each further primary needs shardsEach.
	usualShards, shardsEach = 8, 4
	// smallBatches is the rate up to which a claim takes a few messages only.
	smallBatches = 10_000
	// poolOfBridge and otherConnections are the most that a bridge opens to a node of Redis, see redisclient.
	poolOfBridge, otherConnections = 1024, 2
	// Copies of an id: two keys; a row and its indexes; what each verb writes.
	idsInBase, idsInRow, idsAppended = 2, 3, 5
	// relayConnections is what the default of outbox.relays leads to.
	relayConnections = 8
)

// Of is what a plan needs. The error names the field, its value and the limits.
func Of(p Plan) (*Sizes, error) {
	p, err := p.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Sizes{Waiting: whole(p.waiting()), WaitingMost: whole(p.waitingMost()), CPU: p.cpu(), Shards: p.shards(), Primaries: p.primaries()}
	s.Memory, s.Disk = p.memory(), p.disk()
	s.Replica = p.replica(s.Disk)
	s.Budget = whole(p.waitingMost() * (float64(p.storedBytes()) + budgetOverhead.Value))
	s.Connections.Redis = poolOfBridge + otherConnections
	if o := p.Outbox; o != nil {
		rows := p.Rate * (p.Delay + o.Keep).Seconds()
		s.Outbox = &OutboxSizes{Rows: whole(rows), Bytes: whole(rows * (rowOverhead.Value + p.content(idsInRow)))}
		s.Connections.Database = relayConnections
	}
	return s, nil
}

// inRedis is how long a message waits there.
func (p Plan) inRedis() time.Duration {
	if p.Outbox != nil {
		return min(p.Delay, p.Outbox.Horizon)
	}
	return p.Delay
}

// waiting is the law of Little.
func (p Plan) waiting() float64 { return p.Rate * p.inRedis().Seconds() }

func (p Plan) waitingMost() float64 { return p.Rate * (p.inRedis() + p.Outage).Seconds() }

// content are the bytes that differ from plan to plan: all but what the constants were measured
// with, where so many copies of the id are stored.
func (p Plan) content(ids int) float64 {
	return float64(p.Body + p.Headers + p.Topic - usualTopic + ids*(p.ID-usualID))
}

func (p Plan) memory() Memory {
	each := p.MessageBytes()
	used, most := p.waiting()*each, p.waitingMost()*each
	limit := (most + emptyRedis) * reserve
	changed := p.Rate * p.rewriteSeconds() * copied.Value
	return Memory{
		Message: each, Used: whole(used), UsedMost: whole(most), Maxmemory: whole(limit),
		Host: whole(limit*fragmented + min(changed, limit)), HostWorst: whole(2 * limit * fragmented),
	}
}

// rewriteSeconds is that of one primary's file, at the end of an outage.
func (p Plan) rewriteSeconds() float64 {
	return p.waitingMost() / float64(p.primaries()) * savedMessage.Value * micro
}

// baseBytes is the file after a rewrite, of all primaries together.
func (p Plan) baseBytes() float64 {
	return p.waitingMost() * (baseOverhead.Value + p.content(idsInBase))
}

func (p Plan) disk() Disk {
	perSecond := p.Rate * (appended.Value + p.content(idsAppended))
	base := max(p.baseBytes(), smallestAOF*float64(p.primaries()))
	return Disk{
		PerSecond: whole(perSecond), RewriteEvery: base / perSecond, Rewrite: p.rewriteSeconds(),
		Most: whole(3*base + perSecond*p.rewriteSeconds()), // The old file has doubled, the new one is whole.
	}
}

func (p Plan) replica(d Disk) Replica {
	loaded := p.waitingMost() * loadedMessage.Value * micro
	replayed := p.Rate * d.RewriteEvery * replayedCall.Value * micro
	each := float64(p.primaries())
	return Replica{
		Reload: (loaded + replayed) / each, Sync: loaded/each + p.rewriteSeconds(), Backlog: d.PerSecond * int64(absence.Seconds()),
	}
}

func (p Plan) cpu() CPU {
	few := min(p.Peak, smallBatches)
	c := CPU{
		RedisSchedule: p.Peak * scheduleCPU.Value * micro,
		RedisPublish:  (p.Peak*drainCPU.Value + few*(steadyCPU.Value-drainCPU.Value)) * micro,
		Bridge:        (p.Peak*bridgeDrain.Value + few*(bridgeFew.Value-bridgeDrain.Value)) * micro,
	}
	if p.Outbox != nil {
		c.RedisSchedule, c.RedisRows = 0, p.Peak*relayRedis.Value*micro // The relay schedules.
		c.Bridge += p.Peak * relayBridge.Value * micro
		c.Database = p.Peak * database.Value * micro
	}
	return c
}

// primaries is how many Redis servers share the peak.
func (p Plan) primaries() int { return int(math.Ceil(p.cpu().Redis() / busiest)) }

func (p Plan) shards() int {
	if p.Shards > 0 {
		return p.Shards
	}
	return max(usualShards, shardsEach*p.primaries())
}

func whole(n float64) int64 { return int64(math.Ceil(n)) }
