package rights

import (
	"slices"

	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// use is what a role does in Redis.
type use struct {
	// scripts are those that it runs; without are commands of theirs that it does not
	// come to.
	scripts []*scripts.Script
	without []string
	// data are the commands on keys that Go calls, connection those of a connection and
	// of the server.
	data, connection []string
	// keys are the keys of a queue besides its shards'.
	keys     []func(keys.Queue) string
	channels []func(keys.Queue) string
}

// login is what every connection needs that has a name. AUTH and HELLO need no right.
var login = []string{"client|setname", "eval", "evalsha"}

// A producer may have to finish an interrupted change of the shards. It asks
// INFO for the number of replicas, and can do without the answer.
var producing = []*scripts.Script{
	scripts.Schedule, scripts.Replace, scripts.Put, scripts.Cancel, scripts.Reschedule, scripts.Get,
	scripts.Layout, scripts.Change, scripts.Fence, scripts.Touch, scripts.Tagged, scripts.Members, scripts.Page,
	scripts.Recurring, scripts.Turns,
}

// The scripts behind lists and sums.
var looking = []*scripts.Script{scripts.Get, scripts.Layout, scripts.Stats, scripts.Page, scripts.Tagged, scripts.Parked}

var uses = map[Role]use{
	Producer: {
		scripts:    producing,
		data:       []string{"time", "hgetall", "hmget", "hget", "zrange", "zscore"},
		connection: with(login, "wait"),
		keys:       []func(keys.Queue) string{keys.Queue.Layout, keys.Queue.Recurring},
		channels:   []func(keys.Queue) string{wake, keys.Queue.Layout, keys.Queue.Instances},
	},
	Viewer: {
		scripts:    looking,
		without:    []string{"hset", "hdel"}, // It makes no layout.
		data:       []string{"hgetall", "hget", "hkeys", "hmget", "hstrlen", "hvals", "zcount", "zrandmember", "zrange", "zscan", "zscore"},
		connection: with(login, "ping"),
		keys:       []func(keys.Queue) string{keys.Queue.Layout, keys.Queue.Jobs, keys.Queue.Paused, keys.Queue.Recurring, keys.Queue.Declared},
	},
	Operator: {
		scripts: slices.Concat(producing, looking, []*scripts.Script{
			scripts.Pause, scripts.JobStart, scripts.Scan, scripts.Mend,
			scripts.Rows, scripts.Remove, scripts.Renew, scripts.Forget,
		}),
		data: []string{
			"time", "hdel", "hget", "hgetall", "hkeys", "hmget", "hscan", "hset", "hstrlen", "hvals", "spublish",
			"xadd", "zcard", "zcount", "zrandmember", "zrange", "zscan", "zscore",
		},
		connection: with(login, "ping", "info", "wait"),
		keys:       []func(keys.Queue) string{keys.Queue.Layout, keys.Queue.Instances, keys.Queue.Jobs, keys.Queue.Audit, keys.Queue.Paused, keys.Queue.Recurring, keys.Queue.Declared},
		channels:   []func(keys.Queue) string{wake, keys.Queue.Layout, keys.Queue.Instances},
	},
	Bridge: {
		scripts: slices.Concat(producing, looking, []*scripts.Script{
			scripts.Claim, scripts.Confirm, scripts.Settle, scripts.Mark, scripts.Reclaim, scripts.HandOver,
			scripts.Heartbeat, scripts.Leave, scripts.Pause, scripts.Budget,
			scripts.Scan, scripts.Drained, scripts.Drop,
			scripts.Rows, scripts.Remove, scripts.Renew, scripts.Forget, scripts.JobStart, scripts.JobKeep, scripts.OnceBegin, scripts.OnceEnd,
			scripts.Rate, scripts.Declare,
		}),
		data: []string{
			"time", "hdel", "hexists", "hget", "hgetall", "hkeys", "hlen", "hmget", "hscan", "hset", "hstrlen", "hvals", "spublish",
			"xadd", "xrevrange", "zcard", "zcount", "zrandmember", "zrange", "zscore",
		},
		connection: with(login, "ping", "info", "wait", "ssubscribe", "sunsubscribe"),
		keys:       []func(keys.Queue) string{keys.Queue.Layout, keys.Queue.Instances, keys.Queue.Jobs, keys.Queue.Audit, keys.Queue.AuditCalls, keys.Queue.Paused, keys.Queue.Recurring, keys.Queue.Rates, keys.Queue.Declared},
		channels:   []func(keys.Queue) string{wake, keys.Queue.Layout, keys.Queue.Instances},
	},
}

func with(list []string, more ...string) []string { return slices.Concat(list, more) }
