package rights_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store/rights"
)

var update = flag.Bool("update", false, "write the users into docs/operations.md")

// handbook is where the users are documented.
const handbook = "../../../../docs/operations.md"

// TestHandbookIsCurrent: `go test ./internal/engine/store/rights -run TestHandbookIsCurrent -update`
// writes the users anew.
func TestHandbookIsCurrent(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(handbook)
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	users := map[string]rights.Rights{"finder": rights.AtSentinels()}
	for _, role := range rights.Roles() {
		users[string(role)] = rights.For(role, rights.Setup{Prefix: "delay"})
	}
	for user, r := range users {
		want := r.SetUser(user, "PASSWORD")
		at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "ACL SETUSER "+user+" ") })
		require.GreaterOrEqual(t, at, 0, "%s has no user %s", handbook, user)
		if *update {
			lines[at] = want
		}
		assert.Equal(t, want, lines[at], "with -update the test writes it anew")
	}
	if *update {
		require.NoError(t, os.WriteFile(handbook, []byte(strings.Join(lines, "\n")), 0o600))
	}
}

func TestBridgeMayDoWhatOthersMay(t *testing.T) {
	t.Parallel()
	bridge := rights.For(rights.Bridge, rights.Setup{Prefix: "delay", Queues: []string{"orders"}})
	for _, role := range rights.Roles() {
		r := rights.For(role, rights.Setup{Prefix: "delay", Queues: []string{"orders"}})
		assert.Subset(t, bridge.Commands, r.Commands, role)
		assert.Subset(t, bridge.Keys, r.Keys, role)
		assert.Subset(t, bridge.Channels, r.Channels, role)
	}
}

func TestSetups(t *testing.T) {
	t.Parallel()
	plain := rights.For(rights.Bridge, rights.Setup{Prefix: "delay"})
	assert.Equal(t, []string{"delay:*"}, plain.Keys)
	for _, name := range []string{"publish", "subscribe", "waitaof", "select", "asking", "command", "hello", "auth"} {
		assert.NotContains(t, plain.Commands, name)
	}
	old := rights.For(rights.Bridge, rights.Setup{Prefix: "delay", Old: true, Cluster: true, OtherDatabase: true, Fsync: true})
	assert.Subset(t, old.Commands, []string{"publish", "subscribe", "unsubscribe", "waitaof", "select", "asking", "command", "cluster|slots"})
	for _, name := range []string{"spublish", "ssubscribe", "sunsubscribe"} {
		assert.NotContains(t, old.Commands, name)
	}
	viewer := rights.For(rights.Viewer, rights.Setup{Prefix: "p", Queues: []string{"a", "b"}, Fsync: true})
	assert.Equal(t, []string{
		"p:{a:*}:*", "p:a:layout", "p:a:jobs", "p:{p:a:instances}:paused", "p:{p:a:instances}:recurring", "p:{queues}",
		"p:{b:*}:*", "p:b:layout", "p:b:jobs", "p:{p:b:instances}:paused", "p:{p:b:instances}:recurring",
	}, viewer.Keys)
	assert.Empty(t, viewer.Channels)
	assert.Contains(t, viewer.UserLine("eve", "secret"), "user eve on >secret ~p:{a:*}:* ")
	for _, name := range []string{"waitaof", "hset", "zadd", "hdel", "zrem", "set", "del"} {
		assert.NotContains(t, viewer.Commands, name)
	}
}

// TestCallsOfGo: what Go calls is in the list of some role, and nothing else is.
func TestCallsOfGo(t *testing.T) {
	t.Parallel()
	called := map[string][]string{}
	for _, dir := range []string{"..", "../clock", "../conn", "../declared", "../hints", "../inspect", "../job", "../layout", "../recurring", "../turns", "../verify"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, name := range callsOf(t, file) {
				called[name] = append(called[name], filepath.Base(file))
			}
		}
	}
	listed := map[string]bool{}
	for _, name := range rights.CalledByGo() {
		listed[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(called)) {
		assert.True(t, listed[name], "%s, which %v call, is in no role's list", name, called[name])
	}
	for name := range listed {
		assert.Contains(t, called, name, "a role lists %s, which Go does not call", name)
	}
}

// callsOf are the commands that a file calls: by go-redis' methods, or by their names.
func callsOf(t *testing.T, file string) (names []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	ast.Inspect(parsed, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if ctx, isName := call.Args[0].(*ast.Ident); !ok || !isName || ctx.Name != "ctx" {
			return true
		}
		switch name := method.Sel.Name; {
		case name == "Do" || name == "NewCommand":
			if command := firstText(call.Args[1:]); command != "" {
				names = append(names, command)
			}
		case name == "SSubscribe" || name == "SUnsubscribe":
			names = append(names, strings.ToLower(name))
		case isCommand(name):
			names = append(names, commandOf(name))
		}
		return true
	})
	return names
}

// firstText is the first argument, if it is a literal.
func firstText(args []ast.Expr) (text string) {
	if len(args) == 0 {
		return ""
	}
	literal, ok := args[0].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	text, _ = strconv.Unquote(literal.Value)
	return text
}

// ours are methods of our own that are named as commands are.
var ours = []string{"Get", "Command"}

func isCommand(method string) bool {
	_, found := reflect.TypeFor[redis.Cmdable]().MethodByName(method)
	return found && !slices.Contains(append(ours, "Pipeline", "Pipelined"), method)
}

// commandOf is the command of a method of go-redis.
func commandOf(method string) string {
	for _, suffix := range []string{"WithScores", "Args", "Map", "N"} {
		method = strings.TrimSuffix(method, suffix)
	}
	return strings.ToLower(method)
}
