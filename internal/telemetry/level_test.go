package telemetry

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLevel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		level := NewLevel("warn")
		logger := NewLogger(&out, level, "json").With("a", "b") // Derived ones follow it, too.
		says := func() bool {
			out.Reset()
			logger.Debug("x")
			return out.Len() > 0
		}
		assert.False(t, says())
		level.Set(slog.LevelDebug, time.Minute)
		assert.True(t, says())
		current, configured, until := level.Get()
		assert.Equal(t, []slog.Level{slog.LevelDebug, slog.LevelWarn}, []slog.Level{current, configured})
		assert.Equal(t, time.Now().Add(time.Minute), until)

		time.Sleep(30 * time.Second) //nolint:forbidigo // The bubble's clock.
		level.Set(slog.LevelDebug, time.Minute)
		time.Sleep(45 * time.Second) //nolint:forbidigo // The bubble's clock.
		assert.True(t, says(), "the first change would have ended")
		time.Sleep(16 * time.Second) //nolint:forbidigo // The bubble's clock.
		assert.False(t, says())
		_, _, until = level.Get()
		assert.Zero(t, until)

		level.Set(slog.LevelDebug, time.Minute)
		level.Set(slog.LevelError, 0)
		time.Sleep(time.Hour) //nolint:forbidigo // The bubble's clock.
		current, _, _ = level.Get()
		assert.Equal(t, slog.LevelError, current, "for good")

		level.Set(slog.LevelDebug, time.Minute)
		level.Configure("error")
		assert.True(t, says(), "the change goes on")
		time.Sleep(time.Hour) //nolint:forbidigo // The bubble's clock.
		current, configured, _ = level.Get()
		assert.Equal(t, []slog.Level{slog.LevelError, slog.LevelError}, []slog.Level{current, configured})
		level.Configure("debug")
		assert.True(t, says())
	})
}
