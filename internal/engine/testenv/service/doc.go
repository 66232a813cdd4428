// Package service starts the real servers that the tests need, each a child
// process with its own scratch folder and its own fixed port: Redis, NATS with
// JetStream, RabbitMQ, Kafka, PostgreSQL and MariaDB.
//
// A server never outlives the process that started it, not even when that is
// killed with SIGKILL: a supervisor shell watches a pipe whose write end only
// the starting process holds, and kills the server's whole process group and
// removes its folder at the end of file. No goroutine is left running, so leak
// checks in the tests stay true.
//
// The package knows nothing of package testing, since the suite driver in
// test/services uses it too; the tests use package testenv. Product code
// imports neither.
package service
