package config

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/sinks/kafka"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
	"github.com/delaybridge/delaybridge/internal/tlsserver"
)

var update = flag.Bool("update", false, "rewrite configs/bridge.schema.json, and the keys in docs/operations.md")

const (
	configs  = "../../configs"
	handbook = "../../docs/operations.md"
)

func TestSchemaIsCurrent(t *testing.T) {
	t.Parallel()
	schema, err := Schema()
	require.NoError(t, err)
	path := filepath.Join(configs, "bridge.schema.json")
	if *update {
		require.NoError(t, os.WriteFile(path, schema, 0o644))
	}
	golden, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(golden), string(schema), "run the test with -update and look at the difference")
}

// keyTable is the table of keys in the handbook.
var keyTable = regexp.MustCompile(`(?m)^\| key \| default \| meaning \|\n\|---\|---\|---\|\n(\|.*\n)+`)

// TestHandbookIsCurrent: `go test ./internal/config -run IsCurrent -update` writes the keys anew.
func TestHandbookIsCurrent(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(handbook)
	require.NoError(t, err)
	require.Len(t, keyTable.FindAll(text, -1), 1)
	rows := keyRows("", reflect.TypeFor[Config]())
	table := "| key | default | meaning |\n|---|---|---|\n" + strings.Join(rows, "")
	if *update {
		text = keyTable.ReplaceAllLiteral(text, []byte(table))
		require.NoError(t, os.WriteFile(handbook, text, 0o644))
	}
	assert.Equal(t, table, string(keyTable.Find(text)), "run the test with -update and look at the difference")
}

// page is a page of the documentation, as a tag names it.
var page = regexp.MustCompile(`docs/([a-z]+\.md)`)

// keyRows are the table's rows of a section: one a name, also where variants have keys of one name.
func keyRows(path string, t reflect.Type) (rows []string) {
	fields := fieldsOf(t)
	for i, f := range fields {
		at := join(path, f.name)
		switch {
		case f.typ.Kind() == reflect.Map && f.single != "":
			rows = append(rows, keyRows(at, f.typ.Elem())...)
		case f.typ.Kind() == reflect.Map:
			rows = append(rows, keyRows(join(at, "*"), f.typ.Elem())...)
		case section(f.typ) != nil:
			rows = append(rows, keyRows(at, section(f.typ))...)
		case !slices.ContainsFunc(fields[:i], func(other field) bool { return other.name == f.name }):
			rows = append(rows, keyRow(at, fields[i:]))
		}
	}
	return rows
}

// keyRow is the row of the first of the fields, and of those behind it that have its name.
func keyRow(path string, fields []field) string {
	f := fields[0]
	var meaning, only []string
	for _, other := range fields {
		if other.name != f.name {
			continue
		}
		f.required = f.required && other.required
		only = append(only, other.only...)
		if doc := cmp.Or(other.doc, tlsDocs[other.name]); !slices.Contains(meaning, doc) {
			meaning = append(meaning, doc)
		}
	}
	fallback := ""
	switch {
	case f.hasFallback && f.fallback == "":
		fallback = "`\"\"`"
	case f.hasFallback:
		fallback = "`" + f.fallback + "`"
	case f.required:
		fallback = "required"
	}
	if len(f.enum) > 0 {
		meaning = append(meaning, "One of `"+strings.Join(f.enum, "`, `")+"`.")
	}
	if len(only) > 0 {
		meaning = append(meaning, "With `"+strings.Join(only, "`, `")+"` only.")
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", path, fallback, page.ReplaceAllString(strings.Join(meaning, " "), "[$1]($1)"))
}

func TestExamplesLoad(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(configs, "*.yaml"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 4)
	for _, file := range files {
		_, err := Load(file, nil)
		assert.NoError(t, err)
	}
}

// commentedKey is a key that bridge.yaml shows but does not set.
var commentedKey = regexp.MustCompile(`(?m)^#( *[a-z_]+:)`)

func TestBridgeYAMLShowsEveryKey(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(configs, "bridge.yaml"))
	require.NoError(t, err)
	var root yaml.Node
	require.NoError(t, yaml.Unmarshal(commentedKey.ReplaceAll(data, []byte("$1")), &root))
	shown := map[string]string{}
	collect("", reflect.TypeFor[Config](), root.Content[0], shown)
	for path, fallback := range keys("", reflect.TypeFor[Config]()) {
		value, ok := shown[path]
		assert.True(t, ok, "%s is missing", path)
		if fallback != nil {
			assert.Equal(t, *fallback, value, path)
		}
	}
}

// collect notes the value of each key in a file; names become *.
func collect(path string, t reflect.Type, node *yaml.Node, shown map[string]string) {
	for name, child := range children(node) {
		if t.Kind() == reflect.Map && path == "outbox" && isSingle(node) {
			collect(join(path, "*"), t.Elem(), node, shown)
			return
		}
		if t.Kind() == reflect.Map {
			collect(join(path, "*"), t.Elem(), child, shown)
			continue
		}
		fields := fieldsOf(section(t))
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			continue
		}
		shown[join(path, name)] = child.Value
		if fields[i].typ.Kind() == reflect.Map || section(fields[i].typ) != nil {
			collect(join(path, name), fields[i].typ, child, shown)
		}
	}
}

// keys returns the path of every key, with its default where it has one.
func keys(path string, t reflect.Type) map[string]*string {
	if t.Kind() == reflect.Map {
		return keys(join(path, "*"), t.Elem())
	}
	all := map[string]*string{}
	for _, f := range fieldsOf(section(t)) {
		all[join(path, f.name)] = nil
		if f.hasFallback {
			all[join(path, f.name)] = &f.fallback
		}
		if f.typ.Kind() == reflect.Map || section(f.typ) != nil {
			maps.Copy(all, keys(join(path, f.name), f.typ))
		}
	}
	return all
}

func TestTagsAreRight(t *testing.T) {
	t.Parallel()
	for _, section := range []reflect.Type{
		reflect.TypeFor[Config](), reflect.TypeFor[Redis](), reflect.TypeFor[Queue](), reflect.TypeFor[Retry](), reflect.TypeFor[Sink](),
		reflect.TypeFor[kafka.SASL](), reflect.TypeFor[Admin](), reflect.TypeFor[Log](), reflect.TypeFor[Poller](), reflect.TypeFor[Outbox](), reflect.TypeFor[tlsclient.Files](), reflect.TypeFor[Auth](), reflect.TypeFor[Encryption](), reflect.TypeFor[tlsserver.Files](),
	} {
		fields := fieldsOf(section)
		for _, f := range fields {
			if f.hasFallback {
				assert.NoError(t, f.set(reflect.New(f.typ).Elem(), f.fallback), "default of %s.%s", section, f.name)
			}
			assert.NotEmpty(t, f.doc+tlsDocs[f.name], "doc of %s.%s", section, f.name)
			if f.typ == secretType {
				assert.True(t, slices.ContainsFunc(fields, func(other field) bool { return other.name == f.name+"_file" }), "%s.%s has no _file", section, f.name)
			}
		}
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(token, []byte("hunter2"), 0o600))
	environ := []string{"DELAYBRIDGE__SINKS__R__URL=amqp://u:hunter2@a/v, amqp://u:hunter2@b", "DELAYBRIDGE__REDIS__USERNAME=a$${b}"}
	config, err := Parse([]byte(strings.ReplaceAll(everything, "password: other", "password: hunter2")+`
`), append(environ, "DELAYBRIDGE__SINKS__N__URL=nats://hunter2@a:4222", "DELAYBRIDGE__SINKS__N__USER=", "DELAYBRIDGE__SINKS__N__PASSWORD="))
	require.NoError(t, err)
	withFile := config.Sinks["n"]
	withFile.NATS.URL, withFile.NATS.TokenFile = "nats://a:4222", token
	config.Sinks["m"] = withFile

	var out bytes.Buffer
	require.NoError(t, config.Print(&out))
	text := out.String()
	assert.NotRegexp(t, `\b007\b`, text) // A folder's name may hold it.
	for _, hidden := range []string{"hunter2", "pa$word"} {
		assert.NotContains(t, text, hidden)
	}
	assert.Contains(t, text, "amqp://u:********@a/v,amqp://u:********@b")
	assert.Contains(t, text, "nats://********@a:4222")
	assert.Contains(t, text, "token_file: "+token)

	again, err := Parse(out.Bytes(), nil)
	require.NoError(t, err, text)
	assert.Equal(t, "a$${b}", again.Redis.Username)
	assert.Equal(t, config.Queues, again.Queues)
	assert.Equal(t, config.Instance, again.Instance)
	assert.Equal(t, config.Redis.TLS, again.Redis.TLS)
	var second bytes.Buffer
	require.NoError(t, again.Print(&second))
	assert.Equal(t, text, second.String())
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{minimal, everything, base, "", "a: &a [*a]", "queues: &q {q: *q}", "queues: *x", "log: {level: ${X}}", "? a", base + postgresOutbox, base + twoOutboxes, "<<: {}"} {
		f.Add([]byte(seed), "DELAYBRIDGE__QUEUES__ORDERS__SHARDS=3")
	}
	// What a fuzzer writes must not open files.
	p := parser{
		readFile: func(string) ([]byte, error) { return []byte("content"), nil },
		checkTLS: func(tlsclient.Files) error { return nil },
		checkDSN: func(schema.Dialect, string) error { return nil },

		checkListenerTLS: func(tlsserver.Files) error { return nil },
	}
	f.Fuzz(func(t *testing.T, data []byte, env string) {
		config, err := p.parse(data, []string{env})
		if err != nil {
			return
		}
		var out bytes.Buffer
		require.NoError(t, config.Print(&out))
		_, err = p.parse(out.Bytes(), nil)
		require.NoError(t, err, "printed:\n%s", out.String())
	})
}

// FuzzScalars: a size or a duration is refused, or can be written and read again.
func FuzzScalars(f *testing.F) {
	for _, seed := range []string{"", "1", "-1", "960KiB", "1 MiB", "9223372036854775807GiB", "30s", "1d12h", "-2w", ".5d", "1e9d", "+5m", "--1h", "9999999999w", "1µs", "d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if size, err := ParseSize(text); err == nil {
			again, err := ParseSize(size.String())
			require.NoError(t, err)
			require.Equal(t, size, again)
		}
		if d, err := ParseDuration(text); err == nil {
			again, err := ParseDuration(d.String())
			require.NoError(t, err)
			require.Equal(t, d, again)
			if shift, err := ParseShift(text); err == nil {
				require.Equal(t, d, shift)
			}
		}
	})
}
