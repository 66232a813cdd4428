// Package sim runs whole stories of delaybridge from seeds, and checks that the promise
// holds in each. It has tests only.
//
// # A story
//
// Producers with the SDK, bridges with their members, pollers, keepers and jobs, operators, a
// Redis and a broker run for an hour in one bubble of testing/synctest: two acts full of trouble,
// and a night without bridges between them. All our code is production code, down to the
// bytes that go-redis writes. Redis is simulated: its data is in data_test.go, its commands
// in redis_test.go, and the product's own scripts run in it, see lua_test.go; TestRealRedis gives the
// same commands to a real server and compares the answers.
//
// In half of the stories producers also write rows in transactions, and each bridge has the outbox' relay,
// settler, auditor and consumer of compensation messages. The database is simulated, too: SQLite runs the statements for MySQL,
// and database_test.go isolates transactions and locks rows; TestRealDatabase compares it with MariaDB.
// PostgreSQL's dialect and snapshots of a whole transaction (REPEATABLE READ) are not simulated. A sixth of the stories is about the
// outbox alone: Redis loses nothing by day, and two callers write about one row when it is due. Before the night, bridges hardly ever
// commit what an operation has done, so Redis has done it and no row says so, and in the morning Redis has forgotten it, or has lost everything.
//
// Everything that happens is an event in one queue, see [world]. Between two events the world waits
// until every goroutine waits for it. So goroutines never race for anything that matters, and
// all chance comes from the seed:
//
//	world ──► next event ──► goroutines run until all wait ──► what they have asked
//	  ▲                                                        for, in a fixed order
//	  └───────── when it arrives, and whether: an event ◄──────────────┘
//
// What Go itself leaves to chance (select, maps, timers that are due at once, who runs next)
// [command overlay] takes out of the runtime: with it, and a process for each seed, a story is the
// same on every machine and in every run. Without it, as under go test, most are.
//
// # How to use it
//
//	make sim                              2,000 seeds
//	make sim SEED=7                       that story, which ends with its trace
//	make sim SEED=7 SIM_FLAGS=-shrink     the fewest of its decisions that still fail
//	make sim SEED=7 SIM_FLAGS="-watch m3-2"   all that Redis does with one id
//
// # How to extend it
//
// A plan ([newPlan]) is made of decisions: bursts of calls ([world.burst]) and troubles
// ([world.trouble]), each with its own random source. A new trouble is a name in [conditions] and a
// case in [world.trouble]; each pair of conditions must coincide in the default run. The [model] gets the
// callers' answers, what Redis did to each message, and what the broker stored, and
// names the invariant (I1 to I15) that a failure breaks.
//
// # What is judged
//
// The model follows each [identity] through all shards, command by command, so that several callers
// may contend for it. Each effect belongs to a call that is under way, and each call has one effect ([ask]).
// An answer must have been true at some time during the call: not found, for example, if nothing was there
// at some time in it. What a failover or a wipe takes back ([model.restored]) is excused for the
// messages that had changed since then, and for nothing else; a failover takes back nothing that was
// confirmed as durable. A settle may change only what is in flight under its claim (I5), and what
// a command counts must be what it did (I6, I14). In stories in which only some topics at the broker fail,
// the others are published all the same, as fast as the rates allow (I8). The rules for each script, by what Redis had before
// it ran, are in rules_test.go: that one bridge holds a shard, or that a run has its span, shows nowhere
// else while another rule compensates for it. No script may fail.
//
// What happens to an identity is also written down ([recorder]) in the words of docs/model/Delay.tla, and must be a behaviour of that
// model, see [statespace.Consume]; TestTraces hands some to the model checker (make traces).
//
// Firings of recurring schedules are messages that no caller has scheduled: their life begins when Redis has them, is one of the edition that
// its body names, and must end if whoever has ended that edition was answered ([edition.mayFire]).
//
// # The scripts against an oracle
//
// A story uses the scripts as production does, and judges what callers see. [TestConformance] (make conformance) runs each script
// by itself, with arguments by chance, and knows each answer to the letter, each key, each hint, and how many commands may run: the
// oracle in the files conform_*_test.go is the data model of package store over plain maps, told the time, and written from the headers
// of the scripts. The same verbs go to a real server, whose clock stands still and is set ([testenv.StartRedisWithClock]).
// A difference is told by as few verbs as show it. Faults of command breaks are found, too (SIM_FAULT).
//
// Our code must hold no mutex while it waits for Redis, or the bubble would stop.
package sim
