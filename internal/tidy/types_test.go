package tidy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A type with more fields is several.
const fieldsMax = 15

// module is how paths of our own packages begin.
const module = "github.com/delaybridge/delaybridge/"

// structType is a struct of ours, with the file whose imports it uses.
type structType struct {
	folder string
	file   *ast.File
	fields *ast.FieldList
}

// structTypes are all struct types outside of tests, by folder and name.
func structTypes(t *testing.T) map[string]structType {
	t.Helper()
	found := map[string]structType{}
	for _, name := range files(t, ".go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, read(t, name), parser.SkipObjectResolution)
		require.NoError(t, err)
		addStructs(found, path.Dir(name), file)
	}
	return found
}

func addStructs(found map[string]structType, folder string, file *ast.File) {
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, ok := node.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				found[folder+"."+spec.Name.Name] = structType{folder, file, s.Fields}
			}
		}
		return true
	})
}

// fieldCount counts the fields of a type; an embedded struct of ours counts with
// all of its own, since each of them is a field of the outer one.
func fieldCount(all map[string]structType, s structType) int {
	count := 0
	for _, field := range s.fields.List {
		inner, isOurs := all[embeddedName(s, field)]
		switch {
		case len(field.Names) > 0:
			count += len(field.Names)
		case isOurs:
			count += fieldCount(all, inner)
		default:
			count++
		}
	}
	return count
}

// embeddedName is the folder and name of an embedded type; empty where it is not
// ours.
func embeddedName(s structType, field *ast.Field) string {
	expr := field.Type
	if star, ok := expr.(*ast.StarExpr); ok {
		expr = star.X
	}
	if generic, ok := expr.(*ast.IndexExpr); ok {
		expr = generic.X
	}
	switch e := expr.(type) {
	case *ast.Ident:
		return s.folder + "." + e.Name
	case *ast.SelectorExpr:
		for _, imported := range s.file.Imports {
			folder, isOurs := strings.CutPrefix(strings.Trim(imported.Path.Value, `"`), module)
			name := path.Base(folder)
			if imported.Name != nil {
				name = imported.Name.Name
			}
			if isOurs && isIdent(e.X, name) {
				return folder + "." + e.Sel.Name
			}
		}
	}
	return ""
}

func TestTypesHaveFewFields(t *testing.T) {
	t.Parallel()
	all := structTypes(t)
	require.NotEmpty(t, all)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		assert.LessOrEqual(t, fieldCount(all, all[name]), fieldsMax, "fields of %s, with those of embedded structs", name)
	}
}

func TestFieldsOfEmbeddedStructsCount(t *testing.T) {
	t.Parallel()
	text := `package p
import other "` + module + `q"
type inner struct{ a, b int; c string }
type outer[T any] struct{ *inner; other.Wide; d T }`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
	require.NoError(t, err)
	all := map[string]structType{}
	addStructs(all, "p", file)
	all["q.Wide"] = all["p.inner"]
	assert.Equal(t, 7, fieldCount(all, all["p.outer"]))
}
