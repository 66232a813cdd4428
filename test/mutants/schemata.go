package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// schemata returns the file with all its mutants in it.
func schemata(file string, text []byte, first int) (changed []byte, all []mutant, err error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	s := &schema{fset: fset, text: text, file: file, next: first}
	for _, d := range parsed.Decls {
		if f, isFunc := d.(*ast.FuncDecl); isFunc && f.Body != nil {
			ast.Inspect(f.Body, s.visit)
		}
	}
	return s.apply(), s.all, nil
}

// schema collects what is put into a file. Of the insertions at one place, those after a node come
// first, the innermost first; then those before a node, the outermost first.
type schema struct {
	fset   *token.FileSet
	text   []byte
	file   string
	next   int
	all    []mutant
	before []insertion
	after  []insertion
	cuts   []cut
}

type insertion struct {
	at   int
	text string
}

// cut is a text that another one takes the place of.
type cut struct {
	from, to int
	text     string
}

// visit adds the mutants of a node.
func (s *schema) visit(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.BlockStmt:
		s.statements(n.List)
	case *ast.CaseClause:
		s.statements(n.Body)
	case *ast.CommClause:
		s.statements(n.Body)
	case *ast.IfStmt:
		s.negate(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			s.negate(n.Cond)
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List { //nolint:forcetypeassert // a switch has no others
					s.negate(e)
				}
			}
		}
	case *ast.ReturnStmt:
		for _, e := range n.Results {
			if b, isBinary := e.(*ast.BinaryExpr); isBinary && (b.Op == token.EQL || b.Op == token.NEQ || slices.Contains(orders, b.Op)) {
				s.negate(e)
			}
		}
	case *ast.BinaryExpr:
		s.operator(n)
	case *ast.GenDecl:
		return n.Tok != token.CONST // What calls a function is no constant.
	case *ast.BasicLit:
		s.statement(n)
	}
	return true
}

// statement changes a text if it is a part of a statement in SQL.
func (s *schema) statement(n *ast.BasicLit) {
	if n.Kind != token.STRING || !isSQL.MatchString(n.Value) {
		return
	}
	for _, c := range inSQL {
		for _, at := range c.was.FindAllStringSubmatchIndex(n.Value, -1) {
			changed := n.Value[:at[0]] + string(c.was.ExpandString(nil, c.is, n.Value, at)) + n.Value[at[1]:]
			s.add(n, c.what+" "+n.Value[at[0]:at[1]]+" in", "mutantText(%d, ", ", "+changed+")")
		}
	}
}

// add has a mutant around a node, whose number is put into the text before it.
func (s *schema) add(n ast.Node, what, before, after string) {
	s.all = append(s.all, mutant{s.next, s.file, s.fset.Position(n.Pos()).Line, what + " " + s.short(n), fmt.Sprint("MUTANT=", s.next), ""})
	s.before = append(s.before, insertion{s.offset(n.Pos()), fmt.Sprintf(before, s.next)})
	s.after = append(s.after, insertion{s.offset(n.End()), after})
	s.next++
}

func (s *schema) offset(p token.Pos) int { return s.fset.Position(p).Offset }

// short is the text of a node in one line.
func (s *schema) short(n ast.Node) string {
	text := strings.Join(strings.Fields(string(s.text[s.offset(n.Pos()):s.offset(n.End())])), " ")
	return text[:min(len(text), 90)]
}

func (s *schema) negate(e ast.Expr) { s.add(e, "negate", "mutantNot(%d, ", ")") }

// isSQL tells statements from other texts.
var isSQL = regexp.MustCompile(`\b(SELECT|UPDATE|DELETE|FROM|WHERE|AND|OR|ORDER BY)\b`)

// inSQL are the changes of a statement: what stands there, and what is put in its place.
var inSQL = []change{
	{"limit of", regexp.MustCompile(` <= `), " < "},
	{"limit of", regexp.MustCompile(` < `), " <= "},
	{"limit of", regexp.MustCompile(` >= `), " > "},
	{"limit of", regexp.MustCompile(` > `), " >= "},
	{"or:", regexp.MustCompile(` AND `), " OR "},
	{"and:", regexp.MustCompile(` OR `), " AND "},
	{"unequal:", regexp.MustCompile(`\b(WHERE|AND|OR|NOT|WHEN) ([\w.{} +(]+?) = `), "$1 $2 <> "},
	{"negate", regexp.MustCompile(`\bNOT `), ""},
	{"first of", regexp.MustCompile(`\bIN \((\d), \d\)`), "IN ($1)"},
	{"max:", regexp.MustCompile(`\bmin\(`), "max("},
	{"without", regexp.MustCompile(` ORDER BY [\w, .]+?(| LIMIT \?| FOR UPDATE SKIP LOCKED)"$`), `$1"`},
	{"without", regexp.MustCompile(` FOR UPDATE SKIP LOCKED`), ""},
	{"plus:", regexp.MustCompile(` - `), " + "},
}

// orders are the operators whose limit is changed.
var orders = []token.Token{token.LSS, token.LEQ, token.GTR, token.GEQ}

// operator changes the limit of a comparison, or and to or.
func (s *schema) operator(n *ast.BinaryExpr) {
	from, to := s.offset(n.OpPos), s.offset(n.Y.Pos())
	switch {
	case slices.Contains(orders, n.Op):
		s.add(n, "limit of "+n.Op.String()+":", "mutantCompare(%d, ", `, "`+n.Op.String()+`")`)
		s.cuts = append(s.cuts, cut{from, to, ", "})
	case n.Op == token.LAND:
		s.add(n, "or:", "mutantAnd(%d, ", " })")
		s.cuts = append(s.cuts, cut{from, to, ", func() bool { return "})
	case n.Op == token.LOR:
		s.add(n, "and:", "mutantOr(%d, ", " })")
		s.cuts = append(s.cuts, cut{from, to, ", func() bool { return "})
	}
}

// statements leaves each out that may be left out. A lock that is not given back, and a line of the log, prove nothing.
func (s *schema) statements(list []ast.Stmt) {
	for _, statement := range list {
		switch n := statement.(type) {
		case *ast.ExprStmt:
			if aside.MatchString(s.short(n)) {
				continue
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				continue
			}
		case *ast.IncDecStmt:
		default:
			continue
		}
		s.add(statement, "without", "if !mutantIs(%d) { ", " }")
	}
}

var aside = regexp.MustCompile(`^(panic\(|.*(\.|^)(Lock|Unlock|RLock|RUnlock|(Debug|Info|Warn|Error)(Context)?)\()`)

// apply returns the text with all that was collected.
func (s *schema) apply() []byte {
	type piece struct {
		insertion

		order int
	}
	var pieces []piece
	for i := range s.after {
		pieces = append(pieces, piece{s.after[i], -i - 1})
	}
	for i := range s.before {
		pieces = append(pieces, piece{s.before[i], i + 1})
	}
	slices.SortStableFunc(pieces, func(a, b piece) int {
		if a.at != b.at {
			return a.at - b.at
		}
		return a.order - b.order
	})
	slices.SortFunc(s.cuts, func(a, b cut) int { return a.from - b.from })
	var out bytes.Buffer
	at, cuts := 0, s.cuts
	for _, p := range pieces {
		for len(cuts) > 0 && cuts[0].from < p.at {
			out.Write(s.text[at:cuts[0].from])
			out.WriteString(cuts[0].text)
			at, cuts = cuts[0].to, cuts[1:]
		}
		out.Write(s.text[at:p.at])
		out.WriteString(p.text)
		at = p.at
	}
	out.Write(s.text[at:])
	return out.Bytes()
}

// helpers is the file that a package with mutants needs.
func helpers(text []byte) []byte {
	name := regexp.MustCompile(`(?m)^package \w+`).Find(text)
	return append(name, []byte(`

import (
	"cmp"
	"os"
	"strconv"
	"sync"
)

var (
	theMutant, _ = strconv.Atoi(os.Getenv("MUTANT"))
	reachedFile  = os.Getenv("MUTANTS_REACHED")
	reached      sync.Map
)

func mutantIs(id int) bool {
	if reachedFile != "" {
		if _, is := reached.LoadOrStore(id, true); !is {
			file, err := os.OpenFile(reachedFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err == nil {
				_, err = file.WriteString(strconv.Itoa(id) + "\n")
			}
			if err != nil || file.Close() != nil {
				panic(err)
			}
		}
	}
	return id == theMutant
}

func mutantNot(id int, is bool) bool { return is != mutantIs(id) }

func mutantText(id int, was, is string) string {
	if mutantIs(id) {
		return is
	}
	return was
}

func mutantAnd(id int, a bool, b func() bool) bool {
	if mutantIs(id) {
		return a || b()
	}
	return a && b()
}

func mutantOr(id int, a bool, b func() bool) bool {
	if mutantIs(id) {
		return a && b()
	}
	return a || b()
}

func mutantCompare[T cmp.Ordered](id int, a, b T, op string) bool {
	switch is := a == b && mutantIs(id); { // Elsewhere it makes no difference.
	case op == "<" && !is, op == "<=" && is:
		return a < b
	case op == "<=", op == "<":
		return a <= b
	case op == ">" && !is, op == ">=" && is:
		return a > b
	}
	return a >= b
}
`)...)
}
