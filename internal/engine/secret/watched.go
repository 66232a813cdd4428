package secret

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// lookAgain is the time between two checks of a file.
const lookAgain = time.Second

// WatchedFile is the parsed content of a file. The first call a second or more after the
// last check reads the file again if it has changed. It is safe for concurrent use, and
// keeps only a hash of the content.
type WatchedFile[T any] struct {
	path, what string
	parse      func(content []byte) (T, error)
	logger     *slog.Logger

	mu     sync.Mutex
	looked time.Time
	hash   [sha256.Size]byte // of the content that was read last, valid or not
	value  T
	// failed says that the file could not be read at the last check.
	failed bool
}

// Watch reads the file. The error is that of reading or of parse, whose errors must show
// no secret. what names the content in the log; a nil logger logs nothing.
func Watch[T any](path, what string, parse func(content []byte) (T, error), logger *slog.Logger) (*WatchedFile[T], error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	value, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &WatchedFile[T]{
		path: path, what: what, parse: parse, logger: logger, looked: time.Now(), hash: sha256.Sum256(content), value: value,
	}, nil
}

// Get returns the parsed content; if the file has become invalid, the earlier one.
func (w *WatchedFile[T]) Get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.looked) >= lookAgain {
		w.looked = time.Now()
		w.look()
	}
	return w.value
}

func (w *WatchedFile[T]) look() {
	content, err := os.ReadFile(w.path)
	if err != nil {
		if !w.failed {
			w.logger.Warn(w.what+" cannot be read again, the earlier ones stay", "event", w.what, "err", err)
		}
		w.failed = true
		return
	}
	w.failed = false
	hash := sha256.Sum256(content)
	if hash == w.hash {
		return
	}
	w.hash = hash
	value, err := w.parse(content)
	if err != nil {
		w.logger.Warn(w.what+" are wrong, the earlier ones stay", "event", w.what, "file", w.path, "err", err)
		return
	}
	w.value = value
	w.logger.Info(w.what+" read again", "event", w.what, "file", w.path)
}
