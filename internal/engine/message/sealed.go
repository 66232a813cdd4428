package message

import (
	"errors"
	"fmt"
	"strings"
)

// MaxKeyID limits the id of a key, in bytes. It is shorter than any spelling of a key,
// so that no key is mistaken for an id and shown.
const MaxKeyID = 32

// Why a sealed body does not open.
var (
	// ErrUnknownKey: the key is missing, and may be added later.
	ErrUnknownKey = errors.New("sealed: unknown key")
	// ErrBrokenSeal: the body was not sealed for this message, or was changed since. It can never be
	// opened.
	ErrBrokenSeal = errors.New("sealed: broken seal of key")
)

// UnknownKey is an [ErrUnknownKey] that names the key.
func UnknownKey(id string) error { return fmt.Errorf("%w %q", ErrUnknownKey, id) }

// BrokenSeal is an [ErrBrokenSeal] that names the key.
func BrokenSeal(id string) error { return fmt.Errorf("%w %q", ErrBrokenSeal, id) }

// IsKeyID reports whether the text may be the id of a key: 1 to 32 of A-Z a-z 0-9 . _ -.
func IsKeyID(id string) bool {
	return id != "" && len(id) <= MaxKeyID && strings.Trim(id, plainBytes) == ""
}

func checkKeyID(id string) error {
	if IsKeyID(id) {
		return nil
	}
	return &InvalidError{Field: "header", Value: HeaderSealed, Limit: "its value must be the id of a key"}
}
