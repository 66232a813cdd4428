// Package trial drives the whole bridge from the outside: bridge processes
// between a real Redis and a real broker (world.go), producers that use the SDK
// (load.go, steady.go, churn.go, business.go), what goes wrong meanwhile (faults.go,
// failover.go, redisloss.go, revert.go, part.go), and a ledger that compares what was
// promised with what arrived (ledger.go, book.go, verdict.go). Its tests check the
// promise under faults; test/thirdparty/bench measures in the same worlds.
//
// It knows the bridge only through its public surface: the binary, its
// configuration, the SDK, and the topics at the broker. Nothing of the product
// imports it.
package trial
