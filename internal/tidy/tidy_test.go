package tidy_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// repository is the module's root.
const repository = "../.."

// notOurs are folders that are generated or fetched.
var notOurs = []string{".git", ".cache", "bin", "dist", "node_modules", "target"}

// files returns the slash-separated paths of all our files with one of the
// suffixes.
func files(t *testing.T, suffixes ...string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(repository, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if slices.Contains(notOurs, entry.Name()) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil // In a work tree, .git is a file.
		}
		relative, err := filepath.Rel(repository, name)
		if err != nil {
			return err
		}
		matches := func(suffix string) bool { return strings.HasSuffix(relative, suffix) }
		if entry.Type().IsRegular() && slices.ContainsFunc(suffixes, matches) {
			found = append(found, filepath.ToSlash(relative))
		}
		return nil
	})
	require.NoError(t, err)
	return found
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(file)))
	require.NoError(t, err)
	return text
}

func TestPackagesHaveAComment(t *testing.T) {
	t.Parallel()
	commented := map[string]bool{}
	for _, file := range files(t, ".go") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, read(t, file), parser.ParseComments|parser.PackageClauseOnly)
		require.NoError(t, err)
		commented[path.Dir(file)] = commented[path.Dir(file)] || parsed.Doc.Text() != ""
	}
	require.NotEmpty(t, commented)
	for folder, has := range commented {
		assert.True(t, has, "package comment of %s", folder)
	}
}

// machinePath is an absolute path into somebody's home or checkout.
var machinePath = regexp.MustCompile(`(^|[^\w.])/(home|Users|root|work)/\w|[A-Z]:\\Users\\`)

func TestNothingNamesADevelopersMachine(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, "") {
		if text := read(t, file); !bytes.Contains(text, []byte{0}) { // not a binary
			assert.Empty(t, string(machinePath.Find(text)), "path in %s", file)
		}
	}
}

// metricNames reads the names off the calls and literals of package telemetry.
func metricNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, file := range files(t, ".go") {
		if path.Dir(file) != "internal/telemetry" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, read(t, file), 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(node ast.Node) bool {
			names = append(names, namesIn(node)...)
			return true
		})
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// namesIn knows the four ways in which the package writes a metric's name.
func namesIn(node ast.Node) []string {
	switch n := node.(type) {
	case *ast.CallExpr: // gauges("in_flight", …)
		if isIdent(n.Fun, "gauges", "counters", "queueDesc", "shardDesc") && len(n.Args) > 0 {
			return prefixed(n.Args[0], "")
		}
	case *ast.KeyValueExpr: // Name: "lateness_seconds"
		if isIdent(n.Key, "Name") {
			return prefixed(n.Value, "")
		}
	case *ast.BinaryExpr: // namespace+"_sink_missing"
		if isIdent(n.X, "namespace") {
			if names := prefixed(n.Y, ""); len(names) > 0 && names[0] != "delaybridge__" {
				return []string{strings.Replace(names[0], "__", "_", 1)}
			}
		}
	case *ast.ValueSpec: // var counterHelp = map[string]string{"scheduled": …}
		if n.Names[0].Name != "counterHelp" || len(n.Values) == 0 {
			return nil
		}
		var names []string
		if table, ok := n.Values[0].(*ast.CompositeLit); ok {
			for _, element := range table.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					names = append(names, prefixed(pair.Key, "_total")...)
				}
			}
		}
		return names
	}
	return nil
}

func isIdent(e ast.Expr, names ...string) bool {
	ident, ok := e.(*ast.Ident)
	return ok && slices.Contains(names, ident.Name)
}

func prefixed(e ast.Expr, suffix string) []string {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return nil
	}
	return []string{"delaybridge_" + strings.Trim(literal.Value, `"`) + suffix}
}

func TestMetricsAreInTheOperatorsHandbook(t *testing.T) {
	t.Parallel()
	names := metricNames(t)
	// If telemetry is written differently one day, this test must not pass
	// because it finds nothing.
	require.Subset(t, names, []string{
		"delaybridge_lateness_seconds", "delaybridge_in_flight", "delaybridge_shard_waiting", "delaybridge_sink_missing", "delaybridge_scheduled_total",
	})
	handbook := string(read(t, "docs/operations.md"))
	for _, name := range names {
		word := regexp.MustCompile(`\b` + name + `\b`)
		assert.Regexp(t, word, handbook, "docs/operations.md must name the metric")
	}
}
