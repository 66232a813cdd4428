// Package statespace has the states of a TLA+ model and the steps between them, as the model checker has found them, and
// walks that take each step at least once. A test takes the same steps with the real code, and compares its state with the
// model's after each; see docs/model/README.md.
//
// Its files are written by test/models, so a test needs no model checker.
package statespace

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Graph is the state space of one model.
type Graph struct {
	// Source is the [Source] of which it was made.
	Source string
	// States are JSON: records and functions are objects, tuples and sets arrays. The first is the initial one.
	States  []json.RawMessage
	Actions []string
	Edges   []Edge
	// Alike are the values of the model that may be exchanged, as {"c1", "c2"}: of states that differ only in that,
	// States has one.
	Alike [][2]string
}

// Edge is one step.
type Edge struct {
	From, To, Action int
	// Swaps are the pairs of Alike that must be exchanged in To to have what the step leads to, as bits.
	Swaps int
}

// Step is a step of a walk.
type Step struct {
	Action string
	// State is the state that it leads to.
	State json.RawMessage
	edge  int
}

// Source identifies a model and its constants: it changes with either file, and with what they extend.
func Source(dir, model, config string) (string, error) {
	sum := sha256.New()
	for name := model + ".tla"; name != ""; {
		text, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // a file of the repository
		if err != nil {
			return "", fmt.Errorf("read model: %w", err)
		}
		_, _ = sum.Write(text)
		name = ""
		if of := extended.FindSubmatch(text); of != nil {
			name = string(of[1]) + ".tla"
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, config+".cfg")) //nolint:gosec // likewise
	if err != nil {
		return "", fmt.Errorf("read constants: %w", err)
	}
	_, _ = sum.Write(text)
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// extended is the model that one extends: modules of the language have other names.
var extended = regexp.MustCompile(`(?m)^EXTENDS.*\b(Delay|Layout|Audit)\b`)

// Load reads a graph from a file.
func Load(path string) (*Graph, error) {
	file, err := os.Open(path) //nolint:gosec // a file of the repository
	if err != nil {
		return nil, fmt.Errorf("load state space: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("load state space: %w", err)
	}
	text, err := io.ReadAll(unzipped)
	if err != nil {
		return nil, fmt.Errorf("load state space: %w", err)
	}
	g := &Graph{}
	if err := json.Unmarshal(text, g); err != nil {
		return nil, fmt.Errorf("load state space: %w", err)
	}
	return g, nil
}

// swapped is the state after the exchanges.
func (g *Graph) swapped(state json.RawMessage, swaps int) json.RawMessage {
	var pairs []string
	for i, pair := range g.Alike {
		if swaps>>i&1 == 1 {
			a, b := `"`+pair[0]+`"`, `"`+pair[1]+`"`
			pairs = append(pairs, a, b, b, a)
		}
	}
	if pairs == nil {
		return state
	}
	return json.RawMessage(strings.NewReplacer(pairs...).Replace(string(state)))
}

// Walks returns walks from the initial state that take each step: each goes to the nearest step
// that none has taken, and so on until there is none ahead of it.
func (g *Graph) Walks() (walks [][]Step) {
	w := walker{
		g: g, out: make([][]int, len(g.States)), open: make([]int, len(g.States)), isDone: make([]bool, len(g.States)), taken: make([]bool, len(g.Edges)),
		came: make([]int, len(g.States)), met: make([]int, len(g.States)),
	}
	for i, e := range g.Edges {
		w.out[e.From] = append(w.out[e.From], i)
		w.open[e.From]++
	}
	for {
		var walk []Step
		at, swaps := 0, 0
		for path := w.nearest(at); path != nil; path = w.nearest(at) {
			for _, i := range path {
				e := &g.Edges[i]
				if !w.taken[i] {
					w.taken[i] = true
					w.open[e.From]--
				}
				at, swaps = e.To, swaps^e.Swaps
				walk = append(walk, Step{g.Actions[e.Action], g.swapped(g.States[e.To], swaps), i})
			}
		}
		if walk == nil {
			return walks
		}
		for _, step := range slices.Backward(walk) {
			if !w.finish(w.g.Edges[step.edge].From) {
				break
			}
		}
		walks = append(walks, walk)
	}
}

type walker struct {
	g      *Graph
	out    [][]int // the steps from each state
	open   []int   // how many of them no walk has taken
	isDone []bool  // states after which there is no such step
	taken  []bool  // by step

	came, met []int // by state: the step by which the search came there, and in which search
	searches  int
}

// finish notes that there is nothing to do after a state, if that is so for all that follow it.
func (w *walker) finish(at int) bool {
	w.isDone[at] = w.isDone[at] || w.open[at] == 0 && !slices.ContainsFunc(w.out[at], func(i int) bool { return !w.isDone[w.g.Edges[i].To] })
	return w.isDone[at]
}

// nearest returns the shortest path whose last step no walk has taken.
func (w *walker) nearest(from int) (path []int) {
	if w.isDone[from] {
		return nil
	}
	w.searches++
	w.came[from], w.met[from] = -1, w.searches
	queue := []int{from}
	for n := 0; n < len(queue); n++ {
		at := queue[n]
		if w.open[at] > 0 {
			for i := w.out[at][slices.IndexFunc(w.out[at], func(i int) bool { return !w.taken[i] })]; i >= 0; i = w.came[w.g.Edges[i].From] {
				path = append(path, i)
			}
			slices.Reverse(path)
			return path
		}
		for _, i := range w.out[at] {
			if to := w.g.Edges[i].To; w.met[to] != w.searches && !w.isDone[to] {
				w.came[to], w.met[to] = i, w.searches
				queue = append(queue, to)
			}
		}
	}
	for _, at := range queue {
		w.isDone[at] = true
	}
	return nil
}
