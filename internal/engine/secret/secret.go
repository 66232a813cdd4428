// Package secret holds values that must not be printed: a password or a token,
// given directly or as the name of a file that may change while we run.
package secret

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// Masked replaces a secret wherever it would be printed.
const Masked = "********"

// Secret is a value, or the file that holds it. The zero value is no secret.
type Secret struct {
	value, file string
}

// Value makes a secret of a value.
func Value(v string) Secret { return Secret{value: v} }

// File makes a secret that is read from a file each time it is used, so that a
// rotated secret is picked up at the next connect.
func File(path string) Secret { return Secret{file: path} }

// IsSet reports whether there is a secret at all.
func (s Secret) IsSet() bool { return s.value != "" || s.file != "" }

// Reveal returns the secret itself. A file's last line end is not part of it.
func (s Secret) Reveal() (string, error) {
	if s.file == "" {
		return s.value, nil
	}
	content, err := os.ReadFile(s.file)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	return strings.TrimRight(string(content), "\r\n"), nil
}

// String masks the secret.
func (s Secret) String() string {
	if !s.IsSet() {
		return ""
	}
	return Masked
}

// Format masks the secret whatever the verb: with a wrong one, fmt would print
// the fields.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue masks the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
