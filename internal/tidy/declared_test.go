package tidy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// ours is what declared has read.
var ours struct {
	once  sync.Once
	names map[string]map[string]bool
}

// declared are the names that our code declares, outside of tests, by folder:
// all of them, variables in functions too, and as Type.Name those of types.
func declared(t *testing.T) map[string]map[string]bool {
	t.Helper()
	ours.once.Do(func() { ours.names = readDeclared(t) })
	require.NotEmpty(t, ours.names)
	return ours.names
}

func readDeclared(t *testing.T) map[string]map[string]bool {
	t.Helper()
	found := map[string]map[string]bool{}
	for _, name := range files(t, ".go") {
		isProduct := strings.HasPrefix(name, "internal/") || strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "delay/")
		if !isProduct || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, read(t, name), parser.SkipObjectResolution)
		require.NoError(t, err)
		folder := path.Dir(name)
		if found[folder] == nil {
			found[folder] = map[string]bool{}
		}
		ast.Inspect(file, func(node ast.Node) bool {
			for _, name := range declaredBy(node) {
				found[folder][name] = true
			}
			return true
		})
	}
	return found
}

// declaredBy are the names that a node declares.
func declaredBy(node ast.Node) (names []string) {
	switch n := node.(type) {
	case *ast.FuncDecl:
		names = append(names, n.Name.Name)
		if n.Recv != nil {
			names = append(names, typeName(n.Recv.List[0].Type)+"."+n.Name.Name)
		}
	case *ast.TypeSpec:
		names = append(names, n.Name.Name)
		if s, ok := n.Type.(*ast.StructType); ok {
			for _, field := range s.Fields.List {
				for _, ident := range field.Names {
					names = append(names, n.Name.Name+"."+ident.Name)
				}
			}
		}
	case *ast.Field:
		names = identNames(n.Names)
	case *ast.ValueSpec:
		names = identNames(n.Names)
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return nil
		}
		for _, left := range n.Lhs {
			if ident, ok := left.(*ast.Ident); ok {
				names = append(names, ident.Name)
			}
		}
	}
	return names
}

// typeName is the name of a receiver's type.
func typeName(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	default:
		return ""
	}
}

func identNames(idents []*ast.Ident) []string {
	names := make([]string, len(idents))
	for i, ident := range idents {
		names[i] = ident.Name
	}
	return names
}

// hump is one word of a name such as inFlight or ClaimRequest.
var hump = regexp.MustCompile(`[A-Z]*[a-z0-9]+|[A-Z]+`)

// hasWord reports whether one of the words of a name is that one, or its plural.
func hasWord(name, word string) bool {
	for _, part := range hump.FindAllString(name, -1) {
		if part = strings.ToLower(part); part == word || part == word+"s" {
			return true
		}
	}
	return false
}
