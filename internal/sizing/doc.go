// Package sizing says how large Redis, its disk and replicas, the bridge and the tables of an
// outbox must be for a given load: plan.go is what is asked, size.go the arithmetic, memory.go
// what a message takes in Redis, and constants.go what was measured, each with its source. It
// is pure: the command prints what it returns.
package sizing
