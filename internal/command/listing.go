package command

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// listing prints a list: columns for people, or an object a line for programs.
type listing struct {
	output outputFlag
	w      io.Writer
	tabs   *tabwriter.Writer
	// columns are all of them; those of which wide is set are there with -o wide only.
	columns []string
	wide    []bool
	rows    int
}

// alignedRows is how many rows are kept to make their columns as wide as they need.
const alignedRows = 1000

// onlyWide marks a column that is there with -o wide only.
const onlyWide = "+"

// listing begins a list. It prints nothing before its first row.
func (f outputFlag) listing(w io.Writer, columns ...string) *listing {
	l := &listing{output: f, w: w, tabs: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	for _, column := range columns {
		name, wide := strings.CutPrefix(column, onlyWide)
		l.columns, l.wide = append(l.columns, name), append(l.wide, wide)
	}
	return l
}

// row prints a result: what view returns for programs, or a cell a column.
func (l *listing) row(view func() any, cells ...any) error {
	if l.rows++; l.output.json() {
		return writeJSON(l.w, view())
	}
	if l.rows == 1 {
		names := make([]any, len(l.columns))
		for i, name := range l.columns {
			names[i] = name
		}
		l.line(names)
	}
	l.line(cells)
	if l.rows%alignedRows == 0 {
		return l.tabs.Flush()
	}
	return nil
}

// line writes the cells of a line; end has the error.
func (l *listing) line(cells []any) {
	separator := ""
	for i, cell := range cells {
		if l.wide[i] && !l.output.wide() {
			continue
		}
		_, _ = fmt.Fprintf(l.tabs, "%s%v", separator, cell)
		separator = "\t"
	}
	_, _ = fmt.Fprintln(l.tabs)
}

// end prints what is left, and to people a sentence if there was no row. It passes
// on the error that ended the list.
func (l *listing) end(err error, none string, args ...any) error {
	err = errors.Join(err, l.tabs.Flush())
	if err == nil && l.rows == 0 && !l.output.json() {
		_, err = fmt.Fprintf(l.w, none+"\n", args...)
	}
	return err
}
