package sim

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// engine runs scripts. It is one for all worlds, of which one runs at a time: a script is parsed
// once.
type engine struct {
	state   *lua.LState
	scripts map[string]*compiled // by SHA-1
	server  *redisServer         // for which it runs
}

type compiled struct {
	verb, sha, source string

	run *lua.LFunction
}

var theEngine = newEngine()

func newEngine() *engine {
	e := &engine{scripts: map[string]*compiled{}}
	lua.CompatVarArg = false // Lua 5.0 had a table of the arguments, which each run would make.
	e.state = lua.NewState(lua.Options{RegistrySize: 1 << 16, RegistryMaxSize: 1 << 20, RegistryGrowStep: 1 << 16})
	table := e.state.NewTable()
	table.RawSetString("call", e.state.NewFunction(func(l *lua.LState) int { return e.call(l, true) }))
	table.RawSetString("pcall", e.state.NewFunction(func(l *lua.LState) int { return e.call(l, false) }))
	table.RawSetString("REDIS_VERSION_NUM", lua.LNumber(0x07000f))
	// By this text a script tells one process of Redis from another.
	meta := e.state.NewTable()
	meta.RawSetString("__tostring", e.state.NewFunction(func(l *lua.LState) int {
		l.Push(lua.LString(fmt.Sprintf("table: 0x%08x", e.server.process)))
		return 1
	}))
	table.Metatable = meta
	e.state.SetGlobal("redis", table)
	m := &matcher{}
	texts := e.state.GetGlobal("string").(*lua.LTable) //nolint:forcetypeassert // it is one
	texts.RawSetString("match", e.state.NewFunction(m.stringMatch))
	texts.RawSetString("find", e.state.NewFunction(m.stringFind))
	return e
}

// verbLine is the first line of a script's header.
var verbLine = regexp.MustCompile(`(?m)^-- ([a-z]+): `)

func (e *engine) compile(source string) (string, error) {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see above
	name := hex.EncodeToString(sum[:])
	if e.scripts[name] != nil {
		return name, nil
	}
	verb := "unnamed"
	// What it shares with others stands in front of its own header.
	if all := verbLine.FindAllStringSubmatch(source[:max(0, strings.Index(source, "\n-- KEYS"))], -1); len(all) > 0 {
		verb = all[len(all)-1][1]
	}
	source = broken(verb, source)
	chunk, err := parse.Parse(strings.NewReader(source), "script")
	if err != nil {
		return "", err
	}
	proto, err := lua.Compile(chunk, "script")
	if err != nil {
		return "", err
	}
	e.scripts[name] = &compiled{verb, name, source, e.state.NewFunctionFromProto(proto)}
	return name, nil
}

// broken puts a fault into a script where command breaks has named one: its verb, or "shared", what
// stands there, and what is put in its place.
func broken(verb, source string) string {
	var fault struct{ Verb, Was, Is string }
	if json.Unmarshal([]byte(os.Getenv("SIM_FAULT")), &fault) != nil || fault.Verb != verb && fault.Verb != "shared" {
		return source
	}
	return strings.Replace(source, fault.Was, fault.Is, 1)
}

// eval runs EVAL or EVALSHA.
func (s *redisServer) eval(args []string) any {
	e := theEngine
	name := args[1]
	if strings.EqualFold(args[0], "EVAL") {
		compiled, err := e.compile(args[1])
		if err != nil {
			return redisError("ERR Error compiling script: " + err.Error())
		}
		name, s.known[compiled] = compiled, true
	}
	if !s.known[name] {
		return redisError("NOSCRIPT No matching script. Please use EVAL.")
	}
	n, _ := strconv.Atoi(args[2])
	e.server, s.script = s, e.scripts[name].verb
	s.ran = s.script
	s.isSecond, s.isPurge, s.isNever, s.argv = false, false, false, args[3+n:]
	s.keys = args[3 : 3+n]
	switch argv := args[3+n:]; s.script {
	case "cancel":
		s.isPurge, s.isNever = argv[6] == "1", argv[6] == "n"
	case "schedule":
		s.isSecond = argv[2] != ""
	case "replace":
		s.isSecond = argv[2] == "2"
	case "settle":
		s.token, s.isSecond = argv[0], argv[5] == "1"
	case "claim":
		s.token = argv[0] + "|" + argv[1]
	}
	if s.script == "claim" && s.claims != nil {
		s.claims(args[3])
	}
	if s.starts != nil {
		s.starts(s.script, args[3:3+n], args[3+n:])
	}
	l := e.state
	l.SetGlobal("KEYS", texts(l, args[3:3+n]))
	l.SetGlobal("ARGV", texts(l, args[3+n:]))
	l.SetTop(0)
	err := l.CallByParam(lua.P{Fn: e.scripts[name].run, NRet: 1, Protect: true})
	s.script = ""
	if err != nil {
		text := strings.ReplaceAll(strings.ReplaceAll(err.Error(), "\r", " "), "\n", " ")
		s.broke = e.scripts[name].verb + ": " + text
		return redisError("ERR Error running script " + text)
	}
	reply := fromLua(l.Get(-1))
	l.Pop(1)
	return reply
}

func texts(l *lua.LState, list []string) *lua.LTable {
	t := l.CreateTable(len(list), 0)
	for _, text := range list {
		t.Append(lua.LString(text))
	}
	return t
}

func (e *engine) call(l *lua.LState, raises bool) int {
	args := make([]string, l.GetTop())
	for i := range args {
		switch v := l.Get(i + 1).(type) {
		case lua.LString:
			args[i] = string(v)
		case lua.LNumber:
			args[i] = printed(float64(v))
		default:
			l.RaiseError("ERR a redis command takes texts and numbers, not %s as argument %d of %s", v.Type(), i, args[0])
		}
	}
	e.server.commands++
	reply := e.server.do(args)
	if err, failed := reply.(redisError); failed && raises {
		l.RaiseError("%s", string(err))
	}
	l.Push(toLua(l, reply))
	return 1
}

func toLua(l *lua.LState, reply any) lua.LValue {
	switch v := reply.(type) {
	case nil:
		return lua.LFalse
	case int64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case status:
		t := l.NewTable()
		t.RawSetString("ok", lua.LString(v))
		return t
	case redisError:
		t := l.NewTable()
		t.RawSetString("err", lua.LString(v))
		return t
	case []any:
		t := l.CreateTable(len(v), 0)
		for i, item := range v {
			t.RawSetInt(i+1, toLua(l, item))
		}
		return t
	}
	panic(fmt.Sprintf("no reply: %T", reply))
}

func fromLua(value lua.LValue) any {
	switch v := value.(type) {
	case lua.LNumber:
		return int64(v)
	case lua.LString:
		return string(v)
	case lua.LBool:
		if v {
			return int64(1)
		}
		return nil
	case *lua.LTable:
		if err, ok := v.RawGetString("err").(lua.LString); ok {
			return redisError(err)
		}
		if ok, is := v.RawGetString("ok").(lua.LString); is {
			return status(ok)
		}
		list := make([]any, 0, v.Len())
		for i := 1; ; i++ {
			item := v.RawGetInt(i)
			if item == lua.LNil {
				return list
			}
			list = append(list, fromLua(item))
		}
	}
	return nil
}

// run runs what a client has sent.
func (s *redisServer) run(command []string) any {
	switch strings.ToUpper(command[0]) {
	case "EVAL", "EVALSHA":
		return s.eval(command)
	}
	s.ran = strings.ToLower(command[0])
	return s.do(command)
}
