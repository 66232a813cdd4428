package tidy_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what is generated in docs/sinks/README.md")

const (
	// suite is what every sink passes, guarantees the page that lists it.
	suite      = "internal/sinks/sinktest"
	guarantees = "docs/sinks/README.md"

	generatedFrom = "<!-- generated: go test ./internal/tidy -run TestGuaranteesAreCurrent -update -->\n"
	generatedTo   = "<!-- end of what is generated -->\n"
)

// conformanceCase is a case of the suite, with the comment of its function.
type conformanceCase struct{ name, says string }

// conformanceCases reads them, those that share a broker first.
func conformanceCases(t *testing.T) (cases []conformanceCase) {
	t.Helper()
	comments := map[string]string{}
	var functions []string
	for _, name := range files(t, ".go") {
		if path.Dir(name) != suite {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, read(t, name), parser.ParseComments)
		require.NoError(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.FuncDecl:
				comments[n.Name.Name] = n.Doc.Text()
			case *ast.ValueSpec:
				if isIdent(n.Names[0], "sharedCases", "aloneCases", "privateCases") {
					for _, element := range n.Values[0].(*ast.CompositeLit).Elts {
						fields := element.(*ast.CompositeLit).Elts
						cases = append(cases, conformanceCase{name: literal(t, fields[0])})
						functions = append(functions, fields[1].(*ast.Ident).Name)
					}
				}
			}
			return true
		})
	}
	require.NotEmpty(t, cases)
	for i, function := range functions {
		says, isAbout := strings.CutPrefix(comments[function], function+" ")
		require.True(t, isAbout, "%s, the case %s: its comment says what it does, and wants", function, cases[i].name)
		says = strings.Join(strings.Fields(says), " ")
		cases[i].says = strings.ToUpper(says[:1]) + says[1:]
	}
	return cases
}

// literal is the value of a string.
func literal(t *testing.T, e ast.Expr) string {
	t.Helper()
	value, err := strconv.Unquote(e.(*ast.BasicLit).Value)
	require.NoError(t, err)
	return value
}

// gaps are the cases that a sink's tests leave out, with the reasons; found is false
// where they do not run the suite.
func gaps(t *testing.T, folder string) (left map[string]string, found bool) {
	t.Helper()
	left = map[string]string{}
	for _, name := range files(t, "_test.go") {
		if path.Dir(name) != folder {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, read(t, name), 0)
		require.NoError(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.SelectorExpr:
				found = found || isIdent(n.X, "sinktest") && n.Sel.Name == "Run"
			case *ast.KeyValueExpr:
				if table, ok := n.Value.(*ast.CompositeLit); ok && isIdent(n.Key, "Gaps") {
					for _, element := range table.Elts {
						pair := element.(*ast.KeyValueExpr)
						left[literal(t, pair.Key)] = literal(t, pair.Value)
					}
				}
			}
			return true
		})
	}
	return left, found
}

// guaranteesTable is a row a case, and a column a sink.
func guaranteesTable(t *testing.T) string {
	t.Helper()
	brokers := []struct{ name, folder string }{
		{"Kafka", "internal/sinks/kafka"},
		{"RabbitMQ", "internal/sinks/rabbitmq"},
		{"NATS", "internal/sinks/nats"},
		{"Redis Streams", "internal/sinks/redis"},
		{"Amazon SQS", "internal/sinks/sqs"},
		{"Google Pub/Sub", "internal/sinks/pubsub"},
		{"webhooks", "internal/sinks/webhook"},
	}
	left := make([]map[string]string, len(brokers))
	text := &strings.Builder{}
	text.WriteString("| case | what it does, and wants |")
	for i, broker := range brokers {
		var found bool
		left[i], found = gaps(t, broker.folder)
		require.True(t, found, "%s runs the suite", broker.folder)
		fmt.Fprintf(text, " %s |", broker.name)
	}
	text.WriteString("\n|---|---|" + strings.Repeat("---|", len(brokers)) + "\n")
	for _, c := range conformanceCases(t) {
		fmt.Fprintf(text, "| `%s` | %s |", c.name, c.says)
		for _, out := range left {
			if reason, isLeft := out[c.name]; isLeft {
				fmt.Fprintf(text, " left out: %s |", reason)
			} else {
				text.WriteString(" passes |")
			}
		}
		text.WriteString("\n")
	}
	return text.String()
}

// TestGuaranteesAreCurrent: the page lists the cases of the suite as they are, and which
// sinks leave one out.
func TestGuaranteesAreCurrent(t *testing.T) {
	t.Parallel()
	page := string(read(t, guarantees))
	before, rest, begins := strings.Cut(page, generatedFrom)
	_, after, ends := strings.Cut(rest, generatedTo)
	require.True(t, begins && ends, "%s has the lines %q and %q", guarantees, generatedFrom, generatedTo)
	want := before + generatedFrom + guaranteesTable(t) + generatedTo + after
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(repository, filepath.FromSlash(guarantees)), []byte(want), 0o644))
		return
	}
	assert.Equal(t, want, page, "%s is out of date: go test ./internal/tidy -run TestGuaranteesAreCurrent -update", guarantees)
}
