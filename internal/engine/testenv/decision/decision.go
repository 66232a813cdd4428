// Package decision compares a pure decision with its table, which is written in a comment of the
// same code, so that the two cannot differ.
//
// A table is a part of a comment. Its first line names what the decision depends on and what it
// returns; each further line is a row:
//
//	outcome              | refusals   → verdict
//	refused for good     | *          → dead letter
//	refused, perhaps not | the last   → dead letter
//	refused, perhaps not | fewer      → retry
//	no answer, taken     | *          → release
//
// The first row that fits decides. A cell is one word, or several with commas between them, or *
// for all. A test walks all combinations of words ([Walk]), so each row has to be met, each input
// has to have a row, and each decision has to be the one that its row says.
package decision

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// Input is one thing that a decision depends on: a column of the table, and all words that may be
// in it.
type Input struct {
	Name  string
	Words []string
}

// Or returns an input of these words.
func Or(name string, words ...string) Input { return Input{name, words} }

// Bool returns an input that is "yes" or "no".
func Bool(name string) Input { return Or(name, "yes", "no") }

// Same returns what all inputs that have one word were decided as, or all of that if they were not
// decided alike.
func Same(results ...string) string {
	return strings.Join(slices.Compact(results), ", or ")
}

// Names returns the keys of a map, for [Or].
func Names[V any](all map[string]V) []string { return slices.Sorted(maps.Keys(all)) }

// Case is a combination of words, by the names of the inputs.
type Case map[string]string

// Is reports whether a [Bool] is set.
func (c Case) Is(name string) bool { return c[name] == "yes" }

// Walk reads the table with these inputs from a Go file of the package that is tested, and compares
// each row with what decide returns: the cells of the row's results, with " | " between them. It
// returns "" for what cannot be.
func Walk(t *testing.T, file string, inputs []Input, decide func(Case) string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range compare(string(text), inputs, decide) {
		t.Errorf("%s: %s", file, what)
	}
}

// row is a line of the table.
type row struct {
	cells  []string
	result string
	isMet  bool
}

// compare returns how the table and the decision differ.
func compare(text string, inputs []Input, decide func(Case) string) (differences []string) {
	rows := read(text, inputs)
	if rows == nil {
		return []string{"it has no table of " + header(inputs)}
	}
	for _, r := range rows {
		differences = append(differences, r.unknown(inputs)...)
	}
	for words := range combinations(inputs) {
		c := Case{}
		for i, in := range inputs {
			c[in.Name] = words[i]
		}
		got := decide(c)
		if got == "" {
			continue
		}
		switch i := slices.IndexFunc(rows, func(r *row) bool { return r.fits(words) }); {
		case i < 0:
			differences = append(differences, fmt.Sprintf("no row fits %q, which is decided as %q", words, got))
		case rows[i].result != got:
			rows[i].isMet = true
			differences = append(differences, fmt.Sprintf("%q is decided as %q, and its row says %q", words, got, rows[i].result))
		default:
			rows[i].isMet = true
		}
	}
	for _, r := range rows {
		if !r.isMet {
			differences = append(differences, fmt.Sprintf("nothing meets the row of %q", r.cells))
		}
	}
	return differences
}

func header(inputs []Input) string {
	names := make([]string, len(inputs))
	for i, in := range inputs {
		names[i] = in.Name
	}
	return strings.Join(names, " | ")
}

// read finds the table whose first line has the names of the inputs.
func read(text string, inputs []Input) (rows []*row) {
	isIn := false
	for line := range strings.Lines(text) {
		line, isComment := strings.CutPrefix(strings.TrimSpace(line), "//")
		left, right, isRow := strings.Cut(line, "→")
		cells := cut(left)
		switch {
		case !isComment || !isRow:
			isIn = false
		case isIn:
			rows = append(rows, &row{cells: cells, result: strings.Join(cut(right), " | ")})
		default:
			isIn = strings.Join(cells, " | ") == header(inputs)
		}
	}
	return rows
}

func cut(line string) []string {
	cells := strings.Split(line, "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// unknown are the words of a row that no input has.
func (r *row) unknown(inputs []Input) (differences []string) {
	if len(r.cells) != len(inputs) {
		return []string{fmt.Sprintf("the row of %q has %d cells for %d inputs", r.cells, len(r.cells), len(inputs))}
	}
	for i, cell := range r.cells {
		for _, word := range wordsOf(cell) {
			if word != "*" && !slices.Contains(inputs[i].Words, word) {
				differences = append(differences, fmt.Sprintf("%s is never %q", inputs[i].Name, word))
			}
		}
	}
	return differences
}

func (r *row) fits(words []string) bool {
	if len(r.cells) != len(words) {
		return false
	}
	for i, cell := range r.cells {
		if all := wordsOf(cell); cell != "*" && !slices.Contains(all, words[i]) {
			return false
		}
	}
	return true
}

func wordsOf(cell string) []string { return strings.Split(cell, ", ") }

// combinations yields one word for each input, in all ways.
func combinations(inputs []Input) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		at := make([]int, len(inputs))
		for {
			words := make([]string, len(inputs))
			for i, in := range inputs {
				words[i] = in.Words[at[i]]
			}
			if !yield(words) {
				return
			}
			i := len(at) - 1
			for ; i >= 0; i-- {
				if at[i]++; at[i] < len(inputs[i].Words) {
					break
				}
				at[i] = 0
			}
			if i < 0 {
				return
			}
		}
	}
}
