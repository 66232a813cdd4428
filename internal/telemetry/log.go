package telemetry

import (
	"io"
	"log/slog"

	"golang.org/x/term"
)

// NewLogger returns a logger that writes to w. format is auto, text or json; auto, and
// any other value, is text where w is a terminal.
func NewLogger(w io.Writer, level slog.Leveler, format string) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "text" || format != "json" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd()))
}
