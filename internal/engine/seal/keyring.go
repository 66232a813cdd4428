package seal

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
)

// Keyring has keys by their ids: the first seals, all open. It is safe for concurrent use.
// A nil Keyring has no keys.
type Keyring struct {
	keys func() *keys
}

// keys never change.
type keys struct {
	first string
	byID  map[string]*xaes
}

// Parse makes a keyring from the content of a file of keys. A line has a key's id and its
// 32 bytes in base64 or hexadecimal; empty lines and lines that begin with # are ignored.
//
//	ID KEY
//
// The error joins one error for each wrong line, with its number, and shows no key.
func Parse(content []byte) (*Keyring, error) {
	k, err := parse(content)
	if err != nil {
		return nil, err
	}
	return &Keyring{keys: func() *keys { return k }}, nil
}

// Load is [Parse] for a file, which calls read again, within a second, when it changes. If the
// file has become wrong, the earlier keys stay and the error is logged; logger may be nil.
func Load(path string, logger *slog.Logger) (*Keyring, error) {
	file, err := secret.Watch(path, "keys", parse, logger)
	if err != nil {
		return nil, err
	}
	return &Keyring{keys: file.Get}, nil
}

func parse(content []byte) (*keys, error) {
	k := &keys{byID: map[string]*xaes{}}
	var problems []error
	scanner := bufio.NewScanner(bytes.NewReader(content))
	for number := 1; scanner.Scan(); number++ {
		fields := strings.Fields(scanner.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if err := k.add(fields); err != nil {
			problems = append(problems, fmt.Errorf("line %d: %w", number, err))
		}
	}
	if err := scanner.Err(); err != nil {
		problems = append(problems, err)
	}
	if len(problems) == 0 && k.first == "" {
		problems = append(problems, errors.New("has no key"))
	}
	return k, errors.Join(problems...)
}

// add takes a line. Its errors never show a key, even if id and key are swapped.
func (k *keys) add(fields []string) error {
	if len(fields) != 2 { // Any field could be a key.
		return errors.New("must be an id and a key")
	}
	id := fields[0]
	if !message.IsKeyID(id) {
		return fmt.Errorf("the id must be 1 to %d of A-Z a-z 0-9 . _ -", message.MaxKeyID)
	}
	if k.byID[id] != nil {
		return fmt.Errorf("there is a key %q already", id)
	}
	key, err := newXAES(decode(fields[1]))
	if err != nil {
		return fmt.Errorf("key %q must be 32 bytes, in base64 or hexadecimal", id)
	}
	k.byID[id] = key
	if k.first == "" {
		k.first = id
	}
	return nil
}

// decode returns 32 bytes, or nil.
func decode(text string) []byte {
	raw, err := hex.DecodeString(text)
	if len(text) != hex.EncodedLen(keySize) {
		raw, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	}
	if err != nil || len(raw) != keySize {
		return nil
	}
	return raw
}
