// Package linear checks that the answers about each id are linearizable: callers of several
// clients schedule, replace, cancel, reschedule and get the same few ids at once, while primaries
// of Redis, connections and bridges fail, and porcupine looks for an order of all calls and
// publications of an id in which every answer is true (model_test.go). What the broker has stored
// belongs to the history: a publication is an operation like a call.
//
// The excuses are those of the documentation: a call that ended as unknown, or not durable in a
// failover, may have had its effect or not; and what only reads is not confirmed by replicas, so
// around the death of a primary it may tell of what is lost with it.
package linear
