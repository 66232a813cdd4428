package access

import (
	"log/slog"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
)

// File is a file of tokens, which is read again when it changes.
type File = secret.WatchedFile[*Tokens]

// Open reads the file; see [Parse] for its format and its errors.
func Open(path string, logger *slog.Logger) (*File, error) {
	return secret.Watch(path, "tokens", Parse, logger)
}
