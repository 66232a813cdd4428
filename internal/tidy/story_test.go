package tidy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// story is a walk of docs/one-message.md, and its bounds: how many files one opens, and how often one
// returns to a file that one has left.
type story struct {
	title          string
	files, returns int
}

var stories = []story{
	{"One message, told by its code", 15, 8},
	{"By HTTP", 5, 3},
	{"By a row", 16, 6},
}

// step is one of docs/one-message.md: a line that begins with a number and a link, whose text
// is a function or a script, and whose target is the file that has it. Or it is a heading.
var step = regexp.MustCompile("(?m)^(?:## .*|(\\d+)\\. \\[`([\\w.]+)`\\]\\(\\.\\./([\\w./]+)\\).*)$")

// storyFile is what a file of the story declares: functions, and the names that each uses.
type storyFile map[string]map[string]bool

func readStoryFile(t *testing.T, file string) storyFile {
	t.Helper()
	if path.Ext(file) == ".lua" {
		return storyFile{path.Base(file): {}}
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, read(t, file), parser.SkipObjectResolution)
	require.NoError(t, err)
	declared := storyFile{}
	for _, d := range parsed.Decls {
		f, isFunc := d.(*ast.FuncDecl)
		if !isFunc {
			continue
		}
		name, used := f.Name.Name, map[string]bool{}
		if f.Recv != nil {
			name = typeName(f.Recv.List[0].Type) + "." + name
		}
		ast.Inspect(f, func(node ast.Node) bool {
			if id, isIdent := node.(*ast.Ident); isIdent && id != f.Name {
				used[id.Name] = true
			}
			return true
		})
		declared[name] = used
	}
	return declared
}

// TestOneMessageIsToldByItsCode: each step of the page is there, and is called by one before
// it, unless a part of the story begins with it; and each story is short enough to be walked.
func TestOneMessageIsToldByItsCode(t *testing.T) {
	t.Parallel()
	page := "\n" + string(read(t, "docs/one-message.md"))
	told := strings.Split(page, "\n# ")[1:]
	require.Len(t, told, len(stories))
	for i, s := range stories {
		t.Run(s.title, func(t *testing.T) {
			t.Parallel()
			text, isNamed := strings.CutPrefix(told[i], s.title+"\n")
			require.True(t, isNamed, "the page has other stories, or another order")
			s.check(t, text)
		})
	}
}

func (of story) check(t *testing.T, text string) {
	t.Helper()
	opened, used, last := map[string]storyFile{}, map[string]bool{}, ""
	steps, returns, begins := 0, 0, true
	for _, s := range step.FindAllStringSubmatch(text, -1) {
		number, name, file := s[1], s[2], s[3]
		if number == "" {
			begins = true
			continue
		}
		steps++
		assert.Equal(t, strconv.Itoa(steps), number, "the number of %s", name)
		declared, isKnown := opened[file]
		if !isKnown {
			declared = readStoryFile(t, file)
			opened[file] = declared
		} else if file != last {
			returns++
		}
		calls, isThere := declared[name]
		assert.True(t, isThere, "step %s: %s has no %s", number, file, name)
		short := name[strings.LastIndex(name, ".")+1:]
		if script, isScript := strings.CutSuffix(name, ".lua"); isScript {
			short = strings.ToUpper(script[:1]) + script[1:]
		}
		assert.True(t, begins || used[short], "step %s: no step before it names %s", number, short)
		for id := range calls {
			used[id] = true
		}
		last, begins = file, false
	}
	assert.Positive(t, steps)
	assert.LessOrEqual(t, len(opened), of.files, "files")
	assert.LessOrEqual(t, returns, of.returns, "returns")
	t.Logf("%d steps, %d files, %d returns", steps, len(opened), returns)
}
