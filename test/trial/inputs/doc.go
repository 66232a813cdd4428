// Package inputs tries bad input at each entrance of one real bridge: what the SDK, the
// outbox, its rows, the HTTP API, the configuration, the environment, flags, batches,
// compensation messages and the clock of `bridge dev` take from others. Each input must be
// refused with the field named, none may break anything, and what waits must stay as it is.
//
// An entrance is a file and a type: it makes its inputs from the bad values that all share,
// and knows how to tell a refusal from a crash.
package inputs
