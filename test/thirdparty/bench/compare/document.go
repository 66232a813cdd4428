package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// preface is what the document says before its tables.
//
//go:embed preface.md
var preface string

// explained is what it says behind them.
//
//go:embed explained.md
var explained string

// writeDocument writes all that was kept, and the plot beside it.
func writeDocument(file string, records map[string]*record) error {
	if len(records) == 0 {
		return errors.New("write the document: nothing was kept")
	}
	image := strings.TrimSuffix(file, filepath.Ext(file)) + ".svg"
	var text strings.Builder
	_, _ = fmt.Fprintf(&text, "%s\n![Messages a second, drained](%s)\n\n", preface, filepath.Base(image))
	for _, p := range parts {
		if r, found := records[p.name]; found {
			text.WriteString(p.markdown(r))
		}
	}
	text.WriteString(machines(records))
	text.WriteString(explained)
	if err := os.WriteFile(image, []byte(plot(records)), 0o644); err != nil {
		return fmt.Errorf("write the plot: %w", err)
	}
	if err := os.WriteFile(file, []byte(strings.TrimSpace(text.String())+"\n"), 0o644); err != nil {
		return fmt.Errorf("write the document: %w", err)
	}
	return nil
}
