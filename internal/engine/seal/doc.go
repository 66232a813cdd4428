// Package seal encrypts bodies, so that none is in clear in Redis, in the table of an
// outbox or in a compensation message.
//
// The SDK seals a body before it checks the message's size; a bridge opens it when it hands
// the message to the sink, so consumers read what was scheduled. Id, key, topic, headers,
// tags and due time are not encrypted, because Redis and the bridge work with them.
//
// # Algorithm
//
// XAES-256-GCM, https://c2sp.org/XAES-256-GCM: a random nonce of 24 bytes, from whose first
// half and the keyring's key a key for this message alone is derived. One key of AES-256-GCM
// with random nonces of 12 bytes is good for 2^32 messages (NIST SP 800-38D, 8.3), which a
// busy queue has in weeks, and nobody counts over all producers. With XAES the chance that any
// two of 2^80 messages have the same nonce is 2^-32. The derivation of SP 800-108 costs two
// blocks of AES; HKDF would add hashes and has no public vectors with GCM. A random data key
// per message, wrapped by the keyring's key, would need 60 bytes more, and pays only if a
// remote service does the wrapping.
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
// The tag also covers the id of the keyring's key, and the message's queue, key, id and topic,
// each preceded by its length as a varint. They never change while the message lives, so a
// body opens only in its own message. "delaybridge body 1" comes before them. Due time,
// attempts and token change with each reschedule, retry and redrive; headers with a
// traceparent; the shard with the layout. A replaced body still opens in place of its
// successor, and an unencrypted message needs no key, so anybody who may write to Redis may
// publish. Seals keep secrets; they do not prove origin.
package seal
