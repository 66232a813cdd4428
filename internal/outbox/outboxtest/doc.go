// Package outboxtest is the scene of the tests of the outbox' packages: a database with
// rows as producers write them, a log, and, where wanted, a real Redis with a queue.
// It has its own connections, so that what it reads is what the database holds.
package outboxtest
