package config

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
	"github.com/delaybridge/delaybridge/internal/tlsserver"
)

// Load reads the configuration file at path, with the environment environ
// (NAME=value each, as [os.Environ] returns it) over it, and its queue files. The error joins one
// [*Problem] for everything that is wrong, unless the file cannot be read. What is wrong with queue
// files is no error, see [Config.FileErrors].
func Load(path string, environ []string) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return load(origin{path, data, environ}, nil)
}

// Again reads the file again, with the environment of the first time, and its queue files. One of
// these that is wrong counts as it did in c.
func (c *Config) Again() (*Config, error) {
	data, err := readFile(c.origin.path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return load(origin{c.origin.path, data, c.origin.environ}, c)
}

// load makes a configuration of a file's content and of its queue files. before is the one in force; nil at a start.
func load(from origin, before *Config) (*Config, error) {
	config, err := parseMain(from.data, from.environ)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", from.path, err)
	}
	config.origin = from
	if before != nil {
		config.included.declared = before.included.declared
	}
	return config.join(config.Include(), before), nil
}

// Parse is [Load] of a file's content. Files that the configuration names are read, paths
// of queue files from the working directory.
func Parse(data []byte, environ []string) (*Config, error) {
	config, err := parseMain(data, environ)
	if err != nil || len(config.QueueFiles) == 0 {
		return config, err
	}
	return config.join(config.Include(), nil), nil
}

func parseMain(data []byte, environ []string) (*Config, error) {
	checkTLS := func(files tlsclient.Files) error {
		_, err := files.Config()
		return err
	}
	checkListenerTLS := func(files tlsserver.Files) error {
		_, err := files.Config()
		return err
	}
	return parser{readFile: readFile, checkTLS: checkTLS, checkListenerTLS: checkListenerTLS, checkDSN: sqldb.Check}.parse(data, environ)
}

// readFile is [os.ReadFile] with a bound, as anything may be named.
func readFile(path string) (content []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	content, err = io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("read file %s: has more than %d bytes", path, maxFile)
	}
	return content, nil
}

// parser holds what reaches outside of the configuration's text.
type parser struct {
	readFile func(path string) ([]byte, error)
	checkTLS func(tlsclient.Files) error
	checkDSN func(schema.Dialect, string) error

	checkListenerTLS func(tlsserver.Files) error
}

func (p parser) parse(data []byte, environ []string) (*Config, error) {
	found := newProblems()
	root := document(data, found)
	if len(found.list) > 0 {
		return nil, found.err()
	}
	config := &Config{}
	env := envMap(environ)
	d := decoder{
		problems:  found,
		expander:  expander{env: env, readFile: p.readFile},
		overrides: findOverrides(env, root, found),
	}
	if root != nil && root.Kind != yaml.MappingNode {
		found.addAt(place{line: root.Line}, "", "is %s, must be a section of keys", kindName(root))
		return nil, found.err()
	}
	d.structure("", root, reflect.ValueOf(config).Elem())
	if config.named = config.Instance != ""; !config.named {
		config.Instance = defaultInstance()
	}
	checker{problems: found, config: config, parser: p}.check()
	if err := found.err(); err != nil {
		return nil, err
	}
	return config, nil
}

// document parses the YAML and returns its root, nil if it is empty.
func document(data []byte, found *problems) *yaml.Node {
	if line := badLine(data); line > 0 {
		found.addAt(place{line: line}, "", "has a control character or is not UTF-8")
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err := decoder.Decode(&first); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		addSyntax(data, err, found)
		return nil
	}
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF):
		return first.Content[0]
	case err != nil:
		addSyntax(data, err, found)
	default:
		found.addAt(place{line: second.Line}, "", "starts a second document, only one is allowed")
	}
	return nil
}

// badLine returns the first line with bytes that YAML forbids, 0 if there is
// none: the library reports those without a line.
func badLine(data []byte) int {
	for number, line := range bytes.Split(data, []byte("\n")) {
		if !utf8.Valid(line) || bytes.ContainsFunc(line, isForbidden) {
			return number + 1
		}
	}
	return 0
}

func isForbidden(r rune) bool {
	return r < ' ' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0 && r != 0x85 || r == 0xfffe || r == 0xffff
}

var syntaxLine = regexp.MustCompile(`^yaml: (line (\d+): )?`)

// addSyntax reports what the library found. Its line is that of the enclosing
// block, or one too few, so we look for the line ourselves.
func addSyntax(data []byte, err error, found *problems) {
	match := syntaxLine.FindStringSubmatch(err.Error())
	at := place{line: 1}
	if len(match) > 0 {
		if line, atoiErr := strconv.Atoi(match[2]); atoiErr == nil {
			at.line = line
		}
	}
	if line := brokenLine(data); line > 0 {
		at.line = line
	}
	found.addAt(at, "", "is no valid YAML: %s", syntaxLine.ReplaceAllString(err.Error(), ""))
}

// brokenLine returns the line after the longest part of the file that is valid
// by itself; 0 if the file is so large that this would take long.
func brokenLine(data []byte) int {
	const budget = 16 << 20 // bytes to parse, about half a second
	if bytes.Count(data, []byte("\n"))*len(data) > budget {
		return 0
	}
	for {
		data = data[:max(0, bytes.LastIndexByte(data, '\n'))]
		var node yaml.Node
		if yaml.Unmarshal(data, &node) == nil {
			break
		}
	}
	if len(data) == 0 {
		return 1
	}
	return bytes.Count(data, []byte("\n")) + 2
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// defaultInstance names this process: what the host is called, and something
// that no other process on it has.
func defaultInstance() string {
	const hostMax, randomLength = 64, 6
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	host = strings.Trim(notInName.ReplaceAllString(host, "-"), "-._")
	host = cmp.Or(host[:min(len(host), hostMax)], "bridge")
	return host + "-" + strings.ToLower(rand.Text()[:randomLength])
}
