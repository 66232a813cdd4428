package telemetry

import (
	"io"
	"log/slog"

	"golang.org/x/term"
)

// NewLogger returns a logger that writes to w. level is debug, info, warn or
// error, format auto, text or json; auto is text where w is a terminal. Other
// values mean info and auto: the configuration has refused them before.
func NewLogger(w io.Writer, level, format string) *slog.Logger {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		least = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: least}
	if format == "text" || format != "json" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd()))
}
