package delay

import (
	"fmt"
	"log/slog"

	"github.com/delaybridge/delaybridge/internal/engine/seal"
)

// Keyring has the keys of [WithEncryption], made by [OpenKeyring] or [ParseKeyring]. It is
// safe for concurrent use, by any number of clients.
type Keyring = seal.Keyring

// OpenKeyring reads the keys from a file with one key per line: its id (1 to 32 of A-Z a-z
// 0-9 . _ -) and 32 bytes in base64 or hexadecimal. The first key encrypts; all of them
// decrypt. Empty lines and lines that begin with # are ignored.
//
//	2026-11 Zm9yIHRoZSBleGFtcGxlIG9ubHksIDMyIGJ5dGVzLiE=
//
// Calls read a changed file again, within a second, so keys are rotated without a restart.
// If the changed file is invalid, the old keys stay and the error is logged; logger may be
// nil. The error names lines and ids, and shows no key.
func OpenKeyring(path string, logger *slog.Logger) (*Keyring, error) {
	ring, err := seal.Load(path, logger)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	return ring, nil
}

// ParseKeyring is [OpenKeyring] for the content of such a file, for example from a secret manager.
func ParseKeyring(content []byte) (*Keyring, error) {
	ring, err := seal.Parse(content)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	return ring, nil
}

// WithEncryption encrypts bodies before they leave the process, with the first key of the
// ring, so neither Redis nor a message of [WithCompensation] has them in plain text. A bridge
// decrypts them when it publishes, so consumers see no difference; it needs the same keys
// (encryption.keys in its configuration). ID, Key, topic, headers and tags are not encrypted.
//
// An encrypted body is 41 bytes longer, and a header takes 12 bytes plus the key's id; both
// count towards the message's size. [Client.Get] decrypts bodies for which it has the key.
//
// Give new keys to all bridges first: a message encrypted with a key that they do not have
// waits for it, and goes to the dead letters after the queue's park_patience.
func WithEncryption(keys *Keyring) Option {
	return func(o *options) { o.extras.keys, o.extras.encrypted = keys, true }
}
