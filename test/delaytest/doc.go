// Package delaytest has the tests of delay/delaytest that need servers: that its queue
// answers as one in Redis with a bridge, and reads the outbox of a database.
package delaytest
