package message

import (
	"errors"
	"fmt"
	"strings"
)

// MaxKeyID is how many bytes the id of a key has at the most: fewer than any spelling of a
// key, so that no key is taken for an id, and shown.
const MaxKeyID = 32

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
	return id != "" && len(id) <= MaxKeyID && strings.Trim(id, plainBytes) == ""
}

func checkKeyID(id string) error {
	if IsKeyID(id) {
		return nil
	}
	return &InvalidError{Field: "header", Value: HeaderSealed, Limit: "its value must be the id of a key"}
}
