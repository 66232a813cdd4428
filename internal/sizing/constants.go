package sizing

// Constant is something that was measured, and where.
type Constant struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Source string  `json:"source"`
}

// Machine is where all was measured; on another one times differ, and sizes do not.
const Machine = "2 vCPU, 24 GiB, linux/amd64, Redis 7.0.15, PostgreSQL 15.18, MariaDB 10.11"

// Where the figures are from.
const (
	figures     = "go run ./bench/figures sizes"
	performance = "docs/performance.md, "
	usualBatch  = performance + "What limits it: 10,000 messages a second to NATS"
)

// The constants. Bytes of Redis' memory are no constant: see [Plan.MessageBytes].
var (
	budgetOverhead = Constant{"budget, beyond the stored message", 270, "bytes a message", "what a bridge counts with, docs/operations.md#budget"}
	appended       = Constant{"AOF, beyond body and headers: schedule, claim and settlement, one by one", 470, "bytes a message", figures}
	baseOverhead   = Constant{"base of the AOF, or RDB, beyond body and headers", 88, "bytes a message", figures}
	savedMessage   = Constant{"rewrite of the AOF, or RDB", 3.7, "µs of CPU a message", figures}
	loadedMessage  = Constant{"load of the base, or on a replica", 1.7, "µs of CPU a message", figures}
	replayedCall   = Constant{"load of what was appended since", 7.2, "µs of CPU a message", figures}
	copied         = Constant{"memory copied for a fork", 135, "bytes a message scheduled meanwhile", figures}

	scheduleCPU = Constant{"Redis: schedule, one a call", 17.15, "µs of CPU a message", performance + "Beside the least that Redis could do"}
	drainCPU    = Constant{"Redis: claim and settle, large batches", 7.24, "µs of CPU a message", performance + "Beside the least that Redis could do"}
	steadyCPU   = Constant{"Redis: claim and settle, a few messages each", 57, "µs of CPU a message", usualBatch}
	bridgeDrain = Constant{"bridge, large batches", 9.8, "µs of CPU a message", performance + "To RabbitMQ, a classic queue, the dearest"}
	bridgeFew   = Constant{"bridge, a few messages each", 53, "µs of CPU a message", usualBatch}
	relayRedis  = Constant{"Redis: rows taken and settled", 20.9, "µs of CPU a message", performance + "From the database to Redis"}
	relayBridge = Constant{"bridge: rows taken and settled", 24, "µs of CPU a message", performance + "From the database to Redis"}
	database    = Constant{"PostgreSQL: rows in transactions of one", 202, "µs of CPU a message", performance + "From the database to Redis"}

	rowOverhead = Constant{"row and indexes with dead versions, beyond body and headers", 717, "bytes a row of PostgreSQL; MariaDB takes less", figures}
)

// Constants are all of them.
func Constants() []Constant {
	return []Constant{
		budgetOverhead, appended, baseOverhead, savedMessage, loadedMessage, replayedCall, copied,
		scheduleCPU, drainCPU, steadyCPU, bridgeDrain, bridgeFew, relayRedis, relayBridge, database, rowOverhead,
	}
}

// Unknown is what no figure here has.
var Unknown = []string{
	"the network: latency and bandwidth between bridge, Redis, replicas and broker",
	"whatever else uses the same Redis, machine or disk",
	"another processor: times were measured on " + Machine,
	"tags (110 bytes of Redis and the tag and the id a message), a history (280 bytes of Redis an ended message), dead letters",
	"the broker, and what consumers take",
}
