package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// folder has a configuration with queue files.
type folder struct {
	t    *testing.T
	path string
}

// newFolder writes the main file, with these keys of its section of queue files.
func newFolder(t *testing.T, rules string) folder {
	t.Helper()
	f := folder{t, t.TempDir()}
	require.NoError(t, os.Mkdir(filepath.Join(f.path, "teams"), 0o700))
	f.main(rules, "")
	return f
}

func (f folder) main(rules, more string) {
	f.t.Helper()
	f.write("bridge.yaml", fmt.Sprintf(`queues: {own: {sink: events}}
sinks: {events: {type: nats, url: "nats://127.0.0.1:1"}, other: {type: nats, url: "nats://127.0.0.1:2"}}
queue_files: {teams: {files: ["teams/*.yaml"]%s}}
%s`, rules, more))
}

func (f folder) write(name, text string) {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(filepath.Join(f.path, name), []byte(text), 0o600))
}

func (f folder) remove(name string) {
	f.t.Helper()
	require.NoError(f.t, os.Remove(filepath.Join(f.path, name)))
}

func (f folder) load() *Config {
	f.t.Helper()
	cfg, err := Load(filepath.Join(f.path, "bridge.yaml"), nil)
	require.NoError(f.t, err)
	return cfg
}

// errors are those of the queue files, without the folder.
func (f folder) errors(cfg *Config) (texts []string) {
	for _, p := range cfg.FileErrors() {
		texts = append(texts, strings.ReplaceAll(p.Error(), f.path+"/", ""))
	}
	return texts
}

// queues are the names of all.
func queues(cfg *Config) []string { return slices.Sorted(maps.Keys(cfg.Queues)) }

func TestQueueFiles(t *testing.T) {
	t.Parallel()
	f := newFolder(t, ", sinks: [events], max_shards: 4, max_rate: 50, max_budget: 1MiB")
	f.write("teams/payments.yaml", `owner: payments
contacts: ["#payments", payments@example.com]
queues:
  bills: {sink: events}
  refunds: {sink: events, owner: refunds, contacts: [r], shards: 2, rate: {messages: 5}, budget: {bytes: 1KiB}, topics: ["a$$x"]}
`)
	f.write("teams/no.yml", "not for us")
	cfg := f.load()
	assert.Empty(t, f.errors(cfg))
	assert.Equal(t, []string{"bills", "own", "refunds"}, queues(cfg))
	bills, refunds := cfg.Queues["bills"], cfg.Queues["refunds"]
	assert.Equal(t, "payments", bills.Owner)
	assert.Equal(t, []string{"#payments", "payments@example.com"}, bills.Contacts)
	assert.Equal(t, []any{4, 50, Size(1 << 20)}, []any{bills.Shards, bills.Rate.Messages, bills.Budget.Bytes}, "the most, where it says nothing")
	assert.Equal(t, "refunds", refunds.Owner)
	assert.Equal(t, []string{"r"}, refunds.Contacts)
	assert.Equal(t, []any{2, 5, Size(1 << 10)}, []any{refunds.Shards, refunds.Rate.Messages, refunds.Budget.Bytes})
	assert.Equal(t, []string{"a$x"}, refunds.Topics)
	assert.Equal(t, 8, cfg.Queues["own"].Shards, "the main file is not limited")

	var printed strings.Builder
	require.NoError(t, cfg.Print(&printed))
	assert.NotContains(t, printed.String(), "queue_files", "or they would be declared twice")
	again, err := Parse([]byte(printed.String()), nil)
	require.NoError(t, err)
	assert.Equal(t, cfg.Queues, again.Queues, "what is printed is all that is in force")
}

// TestWrongQueueFiles: each problem has its file and line, and the other file has its queue.
func TestWrongQueueFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ rules, text, want string }{
		"yaml":           {"", "queues:\n  bills: [", "line 2: is no valid YAML: "},
		"empty":          {"", "", "line 1: queues: missing, must be given"},
		"a list":         {"", "[]", "line 1: is a list, must be a section of keys"},
		"unknown key":    {"", "queues:\n  bills: {sink: events}\nsinks: {}", "line 3: sinks: unknown key, known are owner, contacts, queues"},
		"of a queue":     {"", "queues:\n  bills: {sink: events, shard: 1}", "line 2: queues.bills.shard: unknown key"},
		"no sink":        {"", "queues:\n  bills: {sink: nowhere}", `line 2: queues.bills.sink: "nowhere" is no sink, there are: events, other`},
		"a sink":         {", sinks: [events]", "queues:\n  bills: {sink: other}", `line 2: queues.bills.sink: "other" is not allowed, queue_files.teams.sinks has events`},
		"shards":         {", max_shards: 4", "queues:\n  bills: {sink: events, shards: 5}", "line 2: queues.bills.shards: 5 is too large, queue_files.teams.max_shards allows 4"},
		"rate":           {", max_rate: 4", "queues:\n  bills: {sink: events, rate: {messages: 5}}", "line 2: queues.bills.rate.messages: 5 is too large, queue_files.teams.max_rate allows 4"},
		"budget":         {", max_budget: 1MiB", "queues:\n  bills: {sink: events, budget: {bytes: 1GiB}}", "line 2: queues.bills.budget.bytes: 1GiB is too large, queue_files.teams.max_budget allows 1MiB"},
		"policy":         {", max_budget: 1MiB", "queues:\n  bills: {sink: events, budget: {policy: warn}}", "line 2: queues.bills.budget.policy: warn is not allowed"},
		"many":           {", max_queues: 1", "queues:\n  a: {sink: events}\n  b: {sink: events}", "line 1: queues: has 2 queues, queue_files.teams.max_queues allows 1"},
		"prefix":         {", prefix: pay-", "queues:\n  bills: {sink: events}", `line 2: queues.bills: the name must begin with "pay-", by queue_files.teams.prefix`},
		"its own prefix": {", prefix: '*-'", "queues:\n  b-bills: {sink: events}", `line 2: queues.b-bills: the name must begin with "a-", by queue_files.teams.prefix`},
		"main":           {"", "queues:\n  own: {sink: events}", "line 2: queues.own: is declared in bridge.yaml, too"},
		"a secret":       {"", "queues:\n  bills: {sink: events, topics: ['${file:/etc/passwd}']}", "line 2: queues.bills.topics[0]: ${file:/etc/passwd}: only the main file may refer to variables and files"},
		"compensation":   {"", "queues:\n  bills: {sink: events, compensation: mine}", `line 2: queues.bills.compensation: "mine": only the main file may name a topic`},
		"owner":          {"", "owner: " + strings.Repeat("x", 201) + "\nqueues: {bills: {sink: events}}", "line 1: owner: has 201 bytes, allowed are 200"},
		"contacts":       {"", "queues:\n  bills: {sink: events, contacts: ['']}", `line 2: queues.bills.contacts: ""… has 0 bytes, allowed are 1 to 200`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFolder(t, c.rules)
			right := "queues: {bright: {sink: events}}"
			switch {
			case strings.Contains(c.rules, "pay-"):
				right = "queues: {pay-right: {sink: events}}"
			case strings.Contains(c.rules, "*-"):
				right = "queues: {b-right: {sink: events}}"
			}
			f.write("teams/a.yaml", c.text)
			f.write("teams/b.yaml", right)
			cfg := f.load()
			errors := f.errors(cfg)
			require.Len(t, errors, 1)
			assert.True(t, strings.HasPrefix(errors[0], "teams/a.yaml: "+c.want), errors[0])
			assert.Equal(t, 1, cfg.WrongFiles())
			assert.Len(t, cfg.Queues, 2, "of the main file and of the right one")
			assert.NotContains(t, cfg.Queues, "bills")
		})
	}
}

// TestPrefixOfAnotherFile: with the prefix *-, a-b-x is a name for a-b.yaml alone.
func TestPrefixOfAnotherFile(t *testing.T) {
	t.Parallel()
	f := newFolder(t, ", prefix: '*-'")
	f.write("teams/a.yaml", "queues: {a-b-x: {sink: events}}")
	assert.Empty(t, f.errors(f.load()))
	f.write("teams/a-b.yaml", "queues: {a-b-y: {sink: events}}")
	assert.Equal(t, []string{`teams/a.yaml: line 1: queues.a-b-x: names that begin with "a-b-" are those of teams/a-b.yaml`}, f.errors(f.load()))
}

// TestWrongMainFile is wrong as a whole.
func TestWrongMainFile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"queue_files: {a: {files: ['[']}}":                                          `line 3: queue_files.a.files: "[": syntax error in pattern`,
		"queue_files: {a: {}}":                                                      "line 3: queue_files.a.files: missing, must be given",
		"queue_files: {a: {files: [x], sinks: [no]}}":                               `line 3: queue_files.a.sinks: "no" is no sink, there are: events`,
		"inlets: {i: {sink: events, from: {stream: S, subject: s}, queue: theirs}}": `line 3: inlets.i.queue: "theirs" is no queue of this file`,
	} {
		_, err := Parse([]byte(base+text), nil)
		require.ErrorContains(t, err, want)
	}
	_, err := Parse([]byte(`sinks: {events: {type: nats, url: "nats://127.0.0.1:1"}}`), nil)
	require.EqualError(t, err, "line 1: queues: missing, must be given, or queue_files")
	_, err = Parse([]byte(`{sinks: {events: {type: nats, url: "nats://127.0.0.1:1"}}, queue_files: {a: {files: [none.yaml]}}, outbox: {driver: postgres, dsn: "postgres://h/d"}}`), nil)
	require.EqualError(t, err, "line 1: queues: missing, must be given beside an outbox")
	cfg, err := Parse([]byte(`{sinks: {events: {type: nats, url: "nats://127.0.0.1:1"}}, queue_files: {a: {files: [none.yaml]}}}`), nil)
	require.NoError(t, err)
	assert.Empty(t, cfg.Queues, "nobody has declared one yet")
}

// TestTwoFilesWithOneQueue: both are named, and both count as they were before.
func TestTwoFilesWithOneQueue(t *testing.T) {
	t.Parallel()
	f := newFolder(t, "")
	const a, b = "queues: {one: {sink: events}, of-a: {sink: events}}", "queues: {of-b: {sink: events}}"
	f.write("teams/a.yaml", a)
	f.write("teams/b.yaml", "queues: {one: {sink: other}, of-b: {sink: events}}")
	want := []string{
		"teams/a.yaml: line 1: queues.one: is declared in teams/b.yaml, too",
		"teams/b.yaml: line 1: queues.one: is declared in teams/a.yaml, too",
	}
	cfg := f.load()
	assert.ElementsMatch(t, want, f.errors(cfg))
	assert.Equal(t, []string{"own"}, queues(cfg), "at a start neither has any")

	f.write("teams/b.yaml", b)
	cfg = f.load()
	assert.Equal(t, []string{"of-a", "of-b", "one", "own"}, queues(cfg))
	f.write("teams/b.yaml", "queues: {one: {sink: other}, new: {sink: events}}")
	next := cfg.With(cfg.Include())
	assert.ElementsMatch(t, want, f.errors(next))
	assert.Equal(t, cfg.Queues, next.Queues)

	f.write("teams/a.yaml", "queues: [") // Nobody knows any more what it declares.
	next = next.With(next.Include())
	assert.Len(t, f.errors(next), 2)
	assert.Equal(t, cfg.Queues, next.Queues)
	f.write("teams/a.yaml", "queues: {of-a: {sink: events}}")
	next = next.With(next.Include())
	assert.Empty(t, f.errors(next))
	assert.Equal(t, []string{"new", "of-a", "one", "own"}, queues(next))
	assert.Equal(t, "other", next.Queues["one"].Sink, "it has moved")

	f.write("teams/b.yaml", "queues: [")
	f.main("", "")
	f.write("bridge.yaml", strings.Replace(string(must(os.ReadFile(filepath.Join(f.path, "bridge.yaml")))), "own:", "one:", 1))
	next, err := next.Again()
	require.NoError(t, err)
	assert.Equal(t, "events", next.Queues["one"].Sink, "the main file has the last word")
	assert.Equal(t, []string{"new", "of-a", "one"}, queues(next))
}

// TestAFileThatGoesBack is in the way of another, which then goes back, too.
func TestAFileThatGoesBack(t *testing.T) {
	t.Parallel()
	f := newFolder(t, "")
	f.write("teams/a.yaml", "queues: {of-a: {sink: events}}")
	f.write("teams/c.yaml", "queues: {one: {sink: events}}")
	cfg := f.load()
	f.write("teams/a.yaml", "queues: {of-a: {sink: events}, one: {sink: other}}")
	f.write("teams/c.yaml", "queues: {own: {sink: events}}")
	next := cfg.With(cfg.Include())
	assert.Equal(t, []string{
		"teams/a.yaml: line 1: queues.one: is declared in teams/c.yaml, too",
		"teams/c.yaml: line 1: queues.own: is declared in bridge.yaml, too",
	}, f.errors(next))
	assert.Equal(t, cfg.Queues, next.Queues)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestQueueFilesChange: each file is taken whole or not at all, and one that cannot be read is
// not one that is gone.
func TestQueueFilesChange(t *testing.T) {
	t.Parallel()
	f := newFolder(t, "")
	f.write("teams/a.yaml", "queues: {a: {sink: events}}")
	f.write("teams/b.yaml", "queues: {b: {sink: events}}")
	cfg := f.load()
	assert.True(t, cfg.Include().Equal(cfg.included), "nothing has changed")
	f.write("teams/a.yaml", "queues: {a: {sink: other}, more: {sink: events, bogus: 1}}")
	f.write("teams/b.yaml", "queues: {b: {sink: other}}")
	in := cfg.Include()
	assert.False(t, in.Equal(cfg.included))
	next := cfg.With(in)
	assert.True(t, next.included.Equal(in))
	assert.Equal(t, []string{"a", "b", "own"}, queues(next))
	assert.Equal(t, []string{"events", "other"}, []string{next.Queues["a"].Sink, next.Queues["b"].Sink})
	assert.Equal(t, 1, next.WrongFiles())
	changes, err := cfg.Changes(next)
	require.NoError(t, err)
	assert.Equal(t, []string{"b"}, changes.Restarted)

	f.remove("teams/b.yaml")
	next = next.With(next.Include())
	assert.Equal(t, []string{"a", "own"}, queues(next), "it is gone")
	require.NoError(t, os.Rename(filepath.Join(f.path, "teams"), filepath.Join(f.path, "elsewhere")))
	next = next.With(next.Include())
	assert.Equal(t, []string{"a", "own"}, queues(next), "a folder that is away takes no queue along")
	require.Len(t, f.errors(next), 1)
	assert.Regexp(t, "^queue_files.teams: open teams: ", f.errors(next)[0])
	assert.Equal(t, f.errors(next), f.errors(f.load()))
	require.NoError(t, os.Rename(filepath.Join(f.path, "elsewhere"), filepath.Join(f.path, "teams")))
	require.NoError(t, os.Mkdir(filepath.Join(f.path, "teams", "c.yaml"), 0o700))
	f.write("teams/a.yaml", "queues: {a: {sink: other}}")
	next = next.With(next.Include())
	assert.Equal(t, "other", next.Queues["a"].Sink)
	assert.Contains(t, f.errors(next)[0], "teams/c.yaml: cannot be read: ")

	f.main(", max_rate: 5", "  more: {files: [teams/a.yaml]}")
	f.write("bridge.yaml", strings.Replace(string(must(os.ReadFile(filepath.Join(f.path, "bridge.yaml")))), "max_rate: 5}}\n ", "max_rate: 5},\n ", 1)+"}")
	next, err = next.Again()
	require.NoError(t, err)
	assert.Contains(t, f.errors(next)[0], "teams/a.yaml: is named by queue_files.more and queue_files.teams")
	assert.Contains(t, next.Queues, "a")
}

// TestQueueFilesBesideAnOutbox: the set changes as it does elsewhere.
func TestQueueFilesBesideAnOutbox(t *testing.T) {
	t.Parallel()
	f := newFolder(t, "")
	f.main("", `outbox: {driver: postgres, dsn: "postgres://h/d"}`)
	f.write("teams/a.yaml", "queues: {a: {sink: events}}")
	f.write("teams/b.yaml", "queues: {b: {sink: events}}")
	f.write("teams/c.yaml", "queues: {c: {sink: events}}")
	cfg := f.load()
	f.write("teams/a.yaml", "queues: {a: {sink: events, rate: {messages: 5}}}")
	f.write("teams/b.yaml", "queues: {b: {sink: other}, more: {sink: events}}")
	f.remove("teams/c.yaml")
	next := cfg.With(cfg.Include())
	assert.Empty(t, f.errors(next))
	changes, err := cfg.Changes(next)
	require.NoError(t, err)
	assert.Equal(t, Changes{
		Keys:  []string{"queues.a.rate.messages", "queues.b.sink", "queues.c", "queues.more"},
		Added: []string{"more"}, Removed: []string{"c"}, Restarted: []string{"b"}, Changed: []string{"a"},
	}, changes)
}

// declaredBy are queues as the API declares them.
func declaredBy(pairs ...string) map[string]string {
	queues := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		queues[pairs[i]] = pairs[i+1]
	}
	return queues
}

// TestDeclared: a queue that is declared by the API counts as a file with one queue: bounded by its section, and wrong by itself.
func TestDeclared(t *testing.T) {
	t.Parallel()
	f := newFolder(t, "")
	f.main("}, api: {prefix: pay-, sinks: [events], max_shards: 4", "")
	cfg := f.load()
	require.True(t, cfg.IsDeclaredByAPI())
	all := declaredBy("pay-a", `{"sink":"events","owner":"ann"}`, "pay-b", `{"sink":"other"}`, "c", `{"sink":"events"}`, "pay-d", `{"sink":"events","shards":5}`)
	next := cfg.With(cfg.Declare(all))
	assert.Equal(t, []string{"own", "pay-a"}, queues(next))
	assert.Equal(t, []any{4, "ann"}, []any{next.Queues["pay-a"].Shards, next.Queues["pay-a"].Owner})
	assert.Equal(t, []string{
		`api:c: queues.c: the name must begin with "pay-", by queue_files.api.prefix`,
		`api:pay-b: queues.pay-b.sink: "other" is not allowed, queue_files.api.sinks has events`,
		`api:pay-d: queues.pay-d.shards: 5 is too large, queue_files.api.max_shards allows 4`,
	}, f.errors(next))
	assert.True(t, next.HasDeclared("pay-a", all["pay-a"]))
	assert.False(t, next.HasDeclared("pay-a", `{"sink":"other"}`))
	assert.False(t, next.HasDeclared("pay-b", all["pay-b"]))
	assert.True(t, next.Has(next.Include()), "files are read again, and what is declared stays")
	assert.False(t, next.Has(next.Declare(declaredBy())))
	assert.True(t, next.Declare(declaredBy()).EqualFiles(next.Included()))
	again, err := next.Again()
	require.NoError(t, err)
	assert.Equal(t, []string{"own", "pay-a"}, queues(again))

	wrong := next.With(next.Declare(declaredBy("pay-a", `{"sink":"events","shards":9}`)))
	assert.Equal(t, []string{"own", "pay-a"}, queues(wrong), "it counts as it was")
	assert.Equal(t, 4, wrong.Queues["pay-a"].Shards)
	gone := wrong.With(wrong.Declare(declaredBy()))
	assert.Equal(t, []string{"own"}, queues(gone))
	assert.Empty(t, f.errors(gone))

	f.main("", "")
	without, err := next.Again()
	require.NoError(t, err)
	assert.Equal(t, []string{"own"}, queues(without), "the section is gone, and so are its queues")
}

// TestDeclaredAndFiles: a file that takes the name of a queue that is declared by the API counts, and when it goes that one counts again.
func TestDeclaredAndFiles(t *testing.T) {
	t.Parallel()
	f := newFolder(t, "")
	f.main("}, api: {", "")
	f.write("teams/zeta.yaml", "queues: {a: {sink: other}}")
	declared := declaredBy("a", `{"sink":"events"}`, "own", `{"sink":"other"}`)
	cfg := f.load()
	atStart := cfg.With(cfg.Declare(declared))
	assert.Equal(t, "other", atStart.Queues["a"].Sink)
	assert.Equal(t, []string{"api:a: queues.a: is declared in teams/zeta.yaml, too", "api:own: queues.own: is declared in bridge.yaml, too"}, f.errors(atStart))
	assert.Equal(t, "teams/zeta.yaml", strings.TrimPrefix(atStart.FileOf("a"), f.path+"/"))
	assert.Equal(t, "bridge.yaml", strings.TrimPrefix(atStart.FileOf("own"), f.path+"/"))

	f.remove("teams/zeta.yaml")
	ofAPI := atStart.With(atStart.Include())
	assert.Equal(t, "events", ofAPI.Queues["a"].Sink)
	assert.Empty(t, ofAPI.FileOf("a"))
	f.write("teams/zeta.yaml", "queues: {a: {sink: other}}")
	taken := ofAPI.With(ofAPI.Include())
	assert.Equal(t, "other", taken.Queues["a"].Sink)
	assert.Contains(t, f.errors(taken), "api:a: queues.a: is declared in teams/zeta.yaml, too")
	f.remove("teams/zeta.yaml")
	back := taken.With(taken.Include())
	assert.Equal(t, "events", back.Queues["a"].Sink)
}

// TestCheckDeclared: what the API is to declare is checked before it is in force.
func TestCheckDeclared(t *testing.T) {
	t.Parallel()
	f := newFolder(t, ", prefix: '*-'")
	f.main(", prefix: '*-'}, api: {sinks: [events]", "")
	f.write("teams/pay.yaml", "queues: {pay-a: {sink: events}}")
	cfg := f.load()
	texts := func(problems []*Problem) (texts []string) {
		for _, p := range problems {
			texts = append(texts, strings.ReplaceAll(p.Key+": "+p.Text, f.path+"/", ""))
		}
		return texts
	}
	assert.Empty(t, cfg.CheckDeclared("b", `{"sink":"events"}`))
	assert.Equal(t, []string{`queues.pay-b: names that begin with "pay-" are those of teams/pay.yaml`}, texts(cfg.CheckDeclared("pay-b", `{"sink":"events"}`)))
	assert.Equal(t, []string{"queues.b.sink: ${HOME}: only the main file may refer to variables and files; a literal dollar is $$"}, texts(cfg.CheckDeclared("b", `{"sink":"${HOME}"}`))[:1])

	for rules, want := range map[string]string{
		"}, api: {files: [a.yaml]":  "queue_files.api.files: is not allowed",
		"}, api: {prefix: '*-'":     "queue_files.api.prefix: \"*-\": * stands for a file's name",
		"}, more: {prefix: 'more-'": "queue_files.more.files: missing, must be given",
	} {
		f.main(rules, "")
		_, err := Load(filepath.Join(f.path, "bridge.yaml"), nil)
		assert.ErrorContains(t, err, want)
	}
}

// TestDeclarations: a team's file is the same for the API.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	got, err := Declarations([]byte("owner: ann\ncontacts: [desk]\nqueues:\n  a: {sink: events, owner: bob}\n  b: {late: {after: 1h}, shards: 3}\n  c:\n"))
	require.NoError(t, err)
	assert.Equal(t, map[string]map[string]any{
		"a": {"sink": "events", "owner": "bob", "contacts": []string{"desk"}},
		"b": {"late": map[string]any{"after": "1h"}, "shards": 3, "owner": "ann", "contacts": []string{"desk"}},
		"c": {"owner": "ann", "contacts": []string{"desk"}},
	}, got)
	for text, want := range map[string]string{
		"":                          "queues: missing, must be given",
		"queues: [":                 "is no valid YAML",
		"queues: 3":                 "queues: ",
		"queue: {a: {}}":            "line 1: queue: unknown key, known are owner, contacts, queues",
		"queues: {a: {b: 1, b: 2}}": "already defined",
	} {
		_, err := Declarations([]byte(text))
		assert.ErrorContains(t, err, want, text)
	}
}
