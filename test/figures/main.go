// Command figures runs the bridge between a real Redis and real brokers and
// prints what it promises, measured. Each figure is a subcommand:
//
//	flow      20,000 messages due over 20 s, some cancelled, some rescheduled
//	race      20,000 cancels and 20,000 reschedules within 50 ms of the due time
//	kill      as flow, with kill -9 of the bridge five times
//	outage    as flow over 60 s, the broker stopped for 30 s, Redis restarted
//	backlog   memory with 1,000,000 due messages while the broker is down
//	memory    Redis' memory for 1,000,000 waiting messages
//	routes    healthy messages beside a topic that fails, and once it is parked
//	idle      what idle bridges cost: Redis commands, CPU, goroutines, connections
//	drain     200,000 due messages, beside the client library alone
//	links     a backlog over links of 100, 400 and 2,000 kB/s, beside the sink
//	          alone, and with a broker that is paused for 8 s
//	instances three bridges under a steady load: one killed, one paused, one
//	          more, each restarted; how long the worst shard stood still
//	scale     the drain of 400,000 messages by shards and by instances
//	grow      4, 64, then 16 shards under load, with cancels and reschedules
//	sentinel  kill -9 of the primary that Sentinel watches, with each durability
//	cluster   the same in a Redis Cluster, and a slot that migrates
//	outbox    producers' transactions, while bridges, Redis and the database die
//	chaos     the same with all that can be lost: Redis, its last writes, the
//	          database's last commits
//	horizon   an outbox of messages due over a year: Redis' memory, the relay's
//	          statements, lateness of what is due soon
//	size      a queue beside 10,000,000 far rows, 300,000 foreign ones and a long
//	          snapshot, and without them
//	snapshot  lateness while somebody holds a snapshot under which 300,000 rows
//	          were relayed, and without one
//	compensation
//	          producers' writes while Redis is away, carried by the broker
//	durability
//	          lateness, drain and relay with each durability of a queue
//	operate   lists, pages and a job while 5,000,000 messages wait
//	price     what tags, a history and a budget cost a message
//	wipe      FLUSHALL while 1,000,000 messages of an outbox wait in Redis
//	inputs    bad inputs tried at each entrance, with counts
//
// It starts everything itself and exits with 1 where a promise was broken.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/delaybridge/delaybridge/test/flow"
)

// run is one figure's setting.
type run struct {
	binary, broker string
	count, shards  int
	rate, repeat   int
	pause, window  time.Duration
	databases      string
	fault          string
	seed           uint64
}

// figure is a subcommand.
type figure struct {
	measure func(context.Context, run) error
	// brokers, shards and rate are its own, where the flags do not say.
	brokers      string
	shards, rate int
}

const allBrokers = "nats,rabbitmq,kafka"

var figures = map[string]figure{
	"flow": {flowFigure, allBrokers, 8, 5000}, "race": {raceFigure, allBrokers, 8, 5000}, "kill": {killFigure, allBrokers, 8, 5000},
	"outage": {outageFigure, allBrokers, 8, 5000}, "backlog": {backlogFigure, allBrokers, 8, 5000}, "memory": {memoryFigure, allBrokers, 8, 5000},
	"drain": {drainFigure, allBrokers, 8, 5000}, "idle": {idleFigure, "nats", 8, 5000}, "instances": {instancesFigure, "nats", 32, 5000},
	"routes": {routesFigure, allBrokers, 8, 500}, "links": {linksFigure, allBrokers, 8, 5000},
	"scale": {scaleFigure, "nats", 8, 5000}, "grow": {growFigure, "nats", 4, 5000},
	"compensation": {compensationFigure, allBrokers, 8, 1000},
	"durability":   {durabilityFigure, "nats", 8, 1000},
	"wipe":         {wipeFigure, "postgres,mysql", 16, 1000},
	"sentinel":     {sentinelFigure, "nats", 8, 1000}, "cluster": {clusterFigure, "nats", 8, 1000},
	"chaos":  {chaosFigure, "nats", 4, 1000},
	"outbox": {outboxFigure, "nats", 4, 200}, "horizon": {horizonFigure, "nats", 8, 1000},
	"size": {sizeFigure, "nats", 8, 500}, "snapshot": {snapshotFigure, "nats", 8, heldRate}, "operate": {operateFigure, "nats", 8, 5000}, "price": {priceFigure, "nats", 8, 5000},
	"inputs": {inputsFigure, "nats", 2, 1000},
}

const usage = `usage: figures [FLAG...] flow|race|kill|outage|backlog|memory|idle|drain|routes|links|instances|scale|grow|sentinel|cluster|outbox|chaos|horizon|size|snapshot|compensation|durability|wipe|operate|price|inputs

  flow, race, kill, outage           promises under load and trouble    -brokers -count -shards
  backlog, memory, drain             one bridge with many messages      -brokers -count -shards
  idle                               idle bridges, 1 to 10 instances    -brokers -window
  routes                             a dead route beside healthy ones   -brokers -count -rate -window -fault
  links                              a backlog over slow links          -brokers -count (at 400 kB/s) -shards
  instances                          bridges that come and go           -brokers -shards -rate -pause
  scale                              drain by shards, by instances      -brokers -count -repeat
  grow                               the number of shards changes       -brokers -rate -pause
  sentinel, cluster                  failover, slot migration           -brokers -shards -rate -pause
  outbox                             transactions and trouble           -databases -shards -rate -pause -window -seed
  chaos                              all that can be lost               -databases -shards -rate -pause -repeat -seed
  horizon                            an outbox of a year                -databases -count -rate -window
  size                               a full table, and an empty one    -databases -count -rate -window
  snapshot                           a long snapshot, and none         -databases -count -rate -window
  compensation                       the broker carries the writes     -brokers -count -shards -window
  durability                         what each durability costs        -brokers -count -shards -rate -repeat
  operate                            what operators ask for            -count -shards -repeat
  wipe                               Redis is emptied                   -brokers (postgres, mysql) -count -shards
  inputs                             bad input at each entrance         -shards -seed

`

func main() {
	var r run
	brokers := flag.String("brokers", "", "brokers to measure, a comma list of nats, rabbitmq, kafka; empty for the figure's own")
	flag.IntVar(&r.count, "count", 0, "messages, 0 for the figure's own number")
	flag.IntVar(&r.shards, "shards", 0, "shards of the queue, 0 for the figure's own number")
	flag.IntVar(&r.rate, "rate", 0, "messages a second of a steady load, 0 for the figure's own rate")
	flag.IntVar(&r.repeat, "repeat", 3, "repetitions, interleaved")
	flag.DurationVar(&r.pause, "pause", 10*time.Second, "time between two things that happen, more than a lease")
	flag.DurationVar(&r.window, "window", 20*time.Second, "time for which an idle bridge is watched, Redis is away, or a load lasts")
	flag.StringVar(&r.databases, "databases", "postgres,mariadb", "databases of the outbox, a comma list")
	flag.StringVar(&r.fault, "fault", string(flow.Refusing), "how a topic fails: missing, refusing or hanging")
	flag.Uint64Var(&r.seed, "seed", rand.Uint64N(1_000_000), "makes what producers do repeatable") //nolint:gosec // any seed will do
	flag.Usage = func() {
		_, _ = fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	f, found := figures[flag.Arg(0)]
	if !found || flag.NArg() != 1 || r.rate < 0 || r.repeat < 1 || r.pause <= 0 || r.window <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	r.shards, r.rate = cmp.Or(r.shards, f.shards), cmp.Or(r.rate, f.rate)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := all(ctx, f, strings.Split(cmp.Or(*brokers, f.brokers), ","), r); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

func all(ctx context.Context, f figure, brokers []string, r run) error {
	dir, err := os.MkdirTemp("", "delaybridge-figures-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if r.binary, err = flow.Build(ctx, dir); err != nil {
		return err
	}
	var problems []error
	for _, r.broker = range brokers {
		if err := f.measure(ctx, r); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", r.broker, err))
		}
	}
	return errors.Join(problems...)
}
