package message

import (
	"errors"
	"fmt"
	"maps"
	"strings"
)

// HeaderSealed is the header in which a message whose body is sealed carries the id of the
// key: so whatever carries headers carries it. It is taken off when the body is opened, and
// nothing is published that has it.
const HeaderSealed = "delay-sealed"

// MaxKeyID is how many bytes the id of a key has at the most: fewer than any spelling of a
// key, so that no key is taken for an id, and shown.
const MaxKeyID = 32

const keyIDBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

// Why a sealed body does not open.
var (
	// ErrUnknownKey: the key is not there. It may come.
	ErrUnknownKey = errors.New("sealed: unknown key")
	// ErrBrokenSeal: the body is not what was sealed for this message, and never will be.
	ErrBrokenSeal = errors.New("sealed: broken seal of key")
)

// UnknownKey is an [ErrUnknownKey] that names the key.
func UnknownKey(id string) error { return fmt.Errorf("%w %q", ErrUnknownKey, id) }

// BrokenSeal is an [ErrBrokenSeal] that names the key.
func BrokenSeal(id string) error { return fmt.Errorf("%w %q", ErrBrokenSeal, id) }

// IsKeyID reports whether it may be the id of a key: 1 to 32 of A-Z a-z 0-9 . _ -.
func IsKeyID(id string) bool {
	return id != "" && len(id) <= MaxKeyID && strings.Trim(id, keyIDBytes) == ""
}

// SealedBy is the id of the key that has sealed the body; isSealed is false where the body
// is clear.
func (m *Message) SealedBy() (id string, isSealed bool) {
	if len(m.Headers) == 0 {
		return "", false
	}
	id, isSealed = m.Headers[HeaderSealed]
	return id, isSealed
}

// WithSealed returns the headers with the id of the key that has sealed the body; an empty
// one says nothing. The headers given are left alone, and must have no reserved one. The
// error is an [*InvalidError].
func WithSealed(headers map[string]string, id string) (map[string]string, error) {
	if _, taken := headers[HeaderSealed]; taken {
		return nil, reservedHeader(HeaderSealed)
	}
	if id == "" {
		return headers, nil
	}
	all := make(map[string]string, len(headers)+1)
	maps.Copy(all, headers)
	all[HeaderSealed] = id
	return all, nil
}

// CutSealed parts what WithSealed has joined. The error is an [*InvalidError].
func CutSealed(headers map[string]string) (own map[string]string, id string, err error) {
	id, isSealed := headers[HeaderSealed]
	if !isSealed {
		return headers, "", nil
	}
	if !IsKeyID(id) {
		err = &InvalidError{Field: "header", Value: HeaderSealed, Limit: "its value must be the id of a key"}
	}
	if len(headers) == 1 {
		return nil, id, err
	}
	own = maps.Clone(headers)
	delete(own, HeaderSealed)
	return own, id, err
}
