package access

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// lookAgain is how old what is known of the file may be.
const lookAgain = time.Second

// File is a file of tokens, which is read again when it changes: by the first call
// that comes a second or more after it was last looked at.
type File struct {
	path   string
	logger *slog.Logger

	mu      sync.Mutex
	looked  time.Time
	content []byte // as it was read last, though it may be wrong
	tokens  *Tokens
	// failed says that the file could not be read when it was looked at last.
	failed bool
}

// Open reads the file; see [Parse] for its format and its errors.
func Open(path string, logger *slog.Logger) (*File, error) {
	f := &File{path: path, logger: logger, looked: time.Now()}
	var err error
	if f.content, err = os.ReadFile(path); err != nil {
		return nil, err
	}
	if f.tokens, err = Parse(f.content); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Tokens are those of the file; where it has become wrong, those that it had before.
func (f *File) Tokens() *Tokens {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) < lookAgain {
		return f.tokens
	}
	f.looked = time.Now()
	content, err := os.ReadFile(f.path)
	if err != nil {
		if !f.failed {
			f.logger.Warn("tokens cannot be read again, the earlier ones stay", "event", "tokens", "err", err)
		}
		f.failed = true
		return f.tokens
	}
	f.failed = false
	if bytes.Equal(content, f.content) {
		return f.tokens
	}
	f.content = content
	tokens, err := Parse(content)
	if err != nil {
		f.logger.Warn("tokens are wrong, the earlier ones stay", "event", "tokens", "file", f.path, "err", err)
		return f.tokens
	}
	f.tokens = tokens
	f.logger.Info("tokens read again", "event", "tokens", "file", f.path, "tokens", len(tokens.callers))
	return f.tokens
}
