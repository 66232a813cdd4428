package delay

import (
	"fmt"
	"log/slog"

	"github.com/delaybridge/delaybridge/internal/engine/seal"
)

// Keyring has the keys of [WithEncryption], made by [OpenKeyring] or [ParseKeyring]. It is
// safe for concurrent use, by any number of clients.
type Keyring = seal.Keyring

// OpenKeyring reads the keys from a file: a line a key, its id (1 to 32 of A-Z a-z 0-9 . _ -)
// and 32 bytes in base64 or hexadecimal. The first key seals, all of them open. Empty lines
// and those that begin with # are comments.
//
//	2026-11 Zm9yIHRoZSBleGFtcGxlIG9ubHksIDMyIGJ5dGVzLiE=
//
// A changed file is read again within a second of a call, so keys are rotated without a
// restart. An invalid one changes nothing and is logged; logger may be nil. The error names
// lines and ids, and shows no key.
func OpenKeyring(path string, logger *slog.Logger) (*Keyring, error) {
	ring, err := seal.Load(path, logger)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	return ring, nil
}

// ParseKeyring is [OpenKeyring] of a file's content, as a secret manager gives it.
func ParseKeyring(content []byte) (*Keyring, error) {
	ring, err := seal.Parse(content)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	return ring, nil
}

// WithEncryption encrypts bodies before they leave the process, with the first key of the
// ring: they are in clear neither in Redis nor in a message of [WithCompensation]. A
// bridge opens them when it publishes, so consumers see no difference; it needs the same
// keys (encryption.keys in its configuration). Id, key, topic, headers and tags stay clear.
//
// A body takes 41 bytes more, and a header 12 bytes and the key's id; both count towards the
// message's size. [Client.Get] opens bodies for which it has the key.
//
// Give all bridges the keys first: a message that is sealed with a key that they do not have
// waits for it, and goes to the dead letters after the queue's park_patience.
func WithEncryption(keys *Keyring) Option {
	return func(o *options) { o.extras.keys, o.extras.encrypted = keys, true }
}
