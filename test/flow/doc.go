// Package flow drives the whole bridge from the outside, for tests and figures:
// a bridge process between a real Redis and a real broker, producers that use
// the SDK, a consumer that reads the broker, and a ledger that compares what
// was promised with what arrived.
//
// It knows the bridge only through its public surface: the binary, its
// configuration, the SDK, and the topics at the broker. Nothing of the product
// imports it.
package flow
