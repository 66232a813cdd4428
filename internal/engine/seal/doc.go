// Package seal encrypts bodies, so that none is in clear in Redis, in the table of an
// outbox or in a compensation message.
//
// The SDK seals a body before it checks the message's size; a bridge opens it when it
// hands the message to the sink, so consumers read what was scheduled. All else stays
// clear, since Redis and the bridge work with it: id, key, topic, headers, tags, due time.
//
// # Algorithm
//
// XAES-256-GCM, https://c2sp.org/XAES-256-GCM: a random nonce of 24 bytes, from whose first
// half and the keyring's key a key for this message alone is derived. One key of
// AES-256-GCM with random nonces of 12 bytes is good for 2^32 messages (NIST SP 800-38D,
// 8.3), which a busy queue has in weeks, and nobody counts over all producers. With XAES
// the chance that any two of 2^80 messages have the same nonce is 2^-32. The derivation is two
// blocks of AES, that of SP 800-108; HKDF would add hashes and have no public vectors
// with GCM. A random data key a message, wrapped by that of the keyring, would need 60
// bytes more, and pays only where a service far away does the wrapping.
//
// # Format
//
// The header delay-sealed names the key, see [message.HeaderSealed], and the body becomes
//
//	1 byte    form, 1
//	24 bytes  nonce
//	          the body, encrypted
//	16 bytes  tag
//
// # What is bound
//
// The tag also covers, each behind its length as a varint: the id of the keyring's key, and
// the message's queue, key, id and topic, which nothing changes while it lives, so that a body
// opens in its own message alone. Before them stands "delaybridge body 1". Due time, attempts
// and token change with each reschedule, retry and redrive; headers with a traceparent; the
// shard with the layout. A body that was replaced opens in place of its successor, and a clear
// message needs no key: who may write to Redis may publish. Seals keep secrets, they prove no
// origin.
package seal
