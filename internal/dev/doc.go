// Package dev runs what `bridge dev` needs on a machine where nothing is
// installed: a NATS server with JetStream in this process, and a Redis, either
// redis-server from PATH or one in this process that has no persistence.
//
// Everything listens on 127.0.0.1 only, without a login. Streams are made when a
// publish of the bridge finds none, and one for an inlet at the start, which no other part of the bridge does.
// It is for trying things out, never for production. Only internal/command uses it.
package dev
