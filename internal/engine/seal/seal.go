package seal

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

const (
	form    = 1 // the first byte of what is sealed
	tagSize = 16
	// Overhead is how many bytes longer a body is when it is sealed. The message's
	// size also counts its header: 12 bytes and the id of the key.
	Overhead = 1 + nonceSize + tagSize
	// label separates this use of the key from all others.
	label = "delaybridge body 1"
)

// Seal seals the body with the first key of the ring; without a ring it stays as it is. The
// message's queue, key, id and topic must be final. The former headers and body are not
// changed in place. The error is a [*message.InvalidError] if the message has the header of
// a seal already.
func Seal(ring *Keyring, m *message.Message) error {
	if ring == nil {
		_, err := message.WithSealed(m.Headers, "")
		return err
	}
	keys := ring.keys()
	headers, err := message.WithSealed(m.Headers, keys.first)
	if err != nil {
		return err
	}
	sealed := make([]byte, 1+nonceSize, Overhead+len(m.Body))
	sealed[0] = form
	nonce := sealed[1:]
	_, _ = rand.Read(nonce) // It never fails.
	if sealed, err = keys.byID[keys.first].seal(sealed, nonce, m.Body, bound(keys.first, m)); err != nil {
		return fmt.Errorf("seal with key %q: %w", keys.first, err)
	}
	m.Headers, m.Body = headers, sealed
	return nil
}

// Open opens a body that [Seal] has sealed, and removes its header; a message without a seal stays
// as it is. The former headers and body are not changed in place. If it fails, the message is
// unchanged; the error is [message.ErrUnknownKey] or [message.ErrBrokenSeal], with the key's id.
func Open(ring *Keyring, m *message.Message) error {
	if _, isSealed := m.SealedBy(); !isSealed {
		return nil
	}
	headers, id, err := message.CutSealed(m.Headers)
	if err != nil {
		return message.BrokenSeal(id)
	}
	key := ring.find(id)
	if key == nil {
		return message.UnknownKey(id)
	}
	if len(m.Body) < Overhead || m.Body[0] != form {
		return message.BrokenSeal(id)
	}
	nonce, sealed := m.Body[1:1+nonceSize], m.Body[1+nonceSize:]
	aead, err := key.derived(nonce)
	if err != nil { // This process cannot; another one may.
		return fmt.Errorf("%w: %w", message.UnknownKey(id), err)
	}
	body, err := aead.Open(make([]byte, 0, len(sealed)-tagSize), nonce[halfNonce:], sealed, bound(id, m))
	if err != nil {
		return message.BrokenSeal(id)
	}
	m.Headers, m.Body = headers, body
	return nil
}

// find returns nil if the ring has no such key.
func (r *Keyring) find(id string) *xaes {
	if r == nil {
		return nil
	}
	return r.keys().byID[id]
}

// bound returns the additional data that the tag covers, each part preceded by its
// length, so that no two messages have the same.
func bound(keyID string, m *message.Message) []byte {
	parts := [...]string{keyID, m.Queue, m.Key, m.ID, m.Topic}
	size := len(label)
	for _, part := range parts {
		size += binary.MaxVarintLen16 + len(part)
	}
	b := append(make([]byte, 0, size), label...)
	for _, part := range parts {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}
