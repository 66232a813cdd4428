package tidy_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// owned are the packages whose types alone write what they know.
var owned = []string{
	"internal/health", "internal/outbox/auditor", "internal/outbox/relay", "internal/outbox/settler", "internal/poller", "internal/poller/batch", "internal/poller/rate", "internal/poller/routes", "internal/runner", "internal/upkeep", "internal/window",
}

// TestTypesOwnTheirFields: a field of a type that has methods is written by these methods,
// and by functions that make the type. A type without methods is a record, written by whoever
// has it. So what may happen to a machine is what its methods say. And a method whose name
// asks writes no field of its own type.
func TestTypesOwnTheirFields(t *testing.T) {
	t.Parallel()
	sources := newSources(t)
	for _, folder := range owned {
		for _, write := range sources.foreignWrites(folder) {
			assert.Fail(t, write)
		}
		sources.each(folder, func(f *ast.FuncDecl, info *types.Info) {
			if f.Recv == nil || !asks(f.Name.Name) {
				return
			}
			for _, sel := range written(f) {
				if owner := structOf(info.TypeOf(sel.X)); owner != nil && owner.Obj().Name() == typeName(f.Recv.List[0].Type) {
					assert.Fail(t, fmt.Sprintf("%s: %s writes %s", sources.set.Position(sel.Pos()), f.Name.Name, sel.Sel.Name))
				}
			}
		})
	}
}

// asks reports whether a name is a question.
func asks(name string) bool {
	return slices.ContainsFunc([]string{"is", "has", "may"}, func(verb string) bool {
		rest, found := strings.CutPrefix(strings.ToLower(name[:1])+name[1:], verb)
		return found && rest != "" && strings.ToUpper(rest[:1]) == rest[:1]
	})
}

// sources are our packages with their types. What is not ours has none.
type sources struct {
	t      *testing.T
	set    *token.FileSet
	module string
	files  map[string][]*ast.File // by folder
	infos  map[string]*types.Info
	made   map[string]*types.Package // by import path
}

func newSources(t *testing.T) *sources {
	t.Helper()
	s := &sources{
		t: t, set: token.NewFileSet(), files: map[string][]*ast.File{}, infos: map[string]*types.Info{}, made: map[string]*types.Package{},
	}
	mod, _, _ := strings.Cut(string(read(t, "go.mod")), "\n")
	s.module = strings.TrimPrefix(mod, "module ") + "/"
	for _, name := range files(t, ".go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(s.set, name, read(t, name), parser.SkipObjectResolution)
		require.NoError(t, err)
		s.files[path.Dir(name)] = append(s.files[path.Dir(name)], file)
	}
	return s
}

// Import implements [types.Importer].
func (s *sources) Import(name string) (*types.Package, error) {
	if made := s.made[name]; made != nil {
		return made, nil
	}
	folder, isOurs := strings.CutPrefix(name, s.module)
	if !isOurs || s.files[folder] == nil {
		s.made[name] = types.NewPackage(name, path.Base(name))
		s.made[name].MarkComplete()
		return s.made[name], nil
	}
	info := &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	config := types.Config{Importer: s, Error: func(error) {}} // What is not ours is not found.
	made, err := config.Check(name, s.set, s.files[folder], info)
	if made == nil {
		return nil, errors.Join(errors.New(name), err)
	}
	s.made[name], s.infos[folder] = made, info
	return made, nil
}

// each calls do for the functions of a folder.
func (s *sources) each(folder string, do func(*ast.FuncDecl, *types.Info)) {
	s.t.Helper()
	_, err := s.Import(s.module + folder)
	require.NoError(s.t, err)
	require.NotEmpty(s.t, s.files[folder], folder)
	for _, file := range s.files[folder] {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				do(f, s.infos[folder])
			}
		}
	}
}

// foreignWrites are the places in a folder where a field is written that is another type's.
func (s *sources) foreignWrites(folder string) (found []string) {
	s.t.Helper()
	s.each(folder, func(f *ast.FuncDecl, info *types.Info) {
		for _, sel := range written(f) {
			if owner := s.foreign(f, sel, info); owner != "" {
				found = append(found, fmt.Sprintf("%s: %s writes %s.%s", s.set.Position(sel.Pos()), f.Name.Name, owner, sel.Sel.Name))
			}
		}
	})
	return found
}

// written are the fields that a function writes: with elements of them.
func written(f *ast.FuncDecl) (fields []*ast.SelectorExpr) {
	note := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.ParenExpr:
				e = x.X
			case *ast.IndexExpr:
				e = x.X
			case *ast.SelectorExpr:
				fields = append(fields, x)
				return
			default:
				return
			}
		}
	}
	ast.Inspect(f.Body, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				note(e)
			}
		case *ast.IncDecStmt:
			note(n.X)
		}
		return true
	})
	return fields
}

// foreign is the type whose field a function writes though it is not its own; empty if it may.
func (s *sources) foreign(f *ast.FuncDecl, sel *ast.SelectorExpr, info *types.Info) string {
	owner := structOf(info.TypeOf(sel.X))
	if owner == nil || !s.isOwned(owner) || s.isBuilt(sel.X, f, info) {
		return ""
	}
	name := owner.Obj().Name()
	if owner.NumMethods() > 0 && !isMethodOf(f, name) && !makes(f, name) {
		return name
	}
	outer, isField := sel.X.(*ast.SelectorExpr)
	if _, isPointer := info.TypeOf(sel.X).(*types.Pointer); isField && !isPointer { // It is a part of that.
		return s.foreign(f, outer, info)
	}
	return ""
}

func (s *sources) isOwned(t *types.Named) bool {
	return t.Obj().Pkg() != nil && slices.Contains(owned, strings.TrimPrefix(t.Obj().Pkg().Path(), s.module))
}

// isBuilt reports whether what is written is a value of the function's own.
func (s *sources) isBuilt(e ast.Expr, f *ast.FuncDecl, info *types.Info) bool {
	for {
		if _, isPointer := info.TypeOf(e).(*types.Pointer); isPointer {
			return false
		}
		switch x := e.(type) {
		case *ast.SelectorExpr:
			e = x.X
		case *ast.Ident:
			object := info.ObjectOf(x)
			return object != nil && object.Pos() > f.Pos() && object.Pos() < f.End()
		default:
			return false
		}
	}
}

// structOf is the struct type behind a type, if it has a name.
func structOf(t types.Type) *types.Named {
	if t == nil {
		return nil
	}
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	named, _ := types.Unalias(t).(*types.Named)
	if named == nil {
		return nil
	}
	if _, isStruct := named.Underlying().(*types.Struct); !isStruct {
		return nil
	}
	return named
}

func isMethodOf(f *ast.FuncDecl, name string) bool {
	return f.Recv != nil && typeName(f.Recv.List[0].Type) == name
}

// makes reports whether a function is one that returns the type.
func makes(f *ast.FuncDecl, name string) bool {
	return f.Recv == nil && f.Type.Results != nil && slices.ContainsFunc(f.Type.Results.List, func(field *ast.Field) bool {
		return typeName(field.Type) == name
	})
}
