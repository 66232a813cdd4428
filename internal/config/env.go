package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// envPrefix starts the variables that override a key: DELAYBRIDGE__LOG__LEVEL.
const envPrefix = "DELAYBRIDGE__"

// envLevel separates the levels of a path in a variable's name.
const envLevel = "__"

// override is the value that a variable gives to a key. It is taken as it is:
// not expanded, not unquoted.
type override struct {
	env, text string
}

// overrides holds them by the path of the key.
type overrides map[string]override

// under reports whether a key below a section is overridden.
func (o overrides) under(section string) bool {
	for path := range o {
		if strings.HasPrefix(path, section+".") {
			return true
		}
	}
	return false
}

// envMap turns NAME=value entries into a map; of two with one name the last counts.
func envMap(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	return env
}

// envName is a key as a variable's name spells it.
func envName(key string) string {
	return strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}

// findOverrides matches the variables to keys. The names of queues and sinks
// come from the file, as a variable's name cannot tell _ from -.
func findOverrides(env map[string]string, root *yaml.Node, p *problems) overrides {
	found := overrides{}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		rest, ok := strings.CutPrefix(name, envPrefix)
		if !ok {
			continue
		}
		var m matches
		m.find("", field{typ: reflect.TypeFor[Config]()}, root, envName(rest))
		at := place{env: name}
		switch {
		case len(m.keys) > 1:
			p.addAt(at, "", "could mean %s", strings.Join(m.keys, " or "))
		case len(m.keys) == 0 && len(m.sections) > 0:
			p.addAt(at, m.sections[0], "is a section, name a key in it")
		case len(m.keys) == 0:
			p.addAt(at, "", "matches no key; queues and sinks must be in the file")
		case found[m.keys[0]].env != "":
			p.addAt(at, m.keys[0], "is also given by %s", found[m.keys[0]].env)
		default:
			found[m.keys[0]] = override{env: name, text: env[name]}
			p.places[m.keys[0]] = at
		}
	}
	return found
}

// matches are the paths that a variable's name may mean.
type matches struct {
	keys, sections []string
}

func (m *matches) find(path string, parent field, node *yaml.Node, rest string) {
	t := parent.typ
	switch {
	case t.Kind() == reflect.Map && parent.single != "" && isSingle(node):
		t = t.Elem()
	case t.Kind() == reflect.Map:
		for name, child := range children(node) {
			m.step(join(path, name), field{name: name, typ: t.Elem()}, child, rest)
		}
		return
	}
	nodes := maps.Collect(children(node))
	for _, f := range ofVariant(fieldsOf(section(t)), "") {
		m.step(join(path, f.name), f, nodes[f.name], rest)
	}
}

func (m *matches) step(path string, f field, node *yaml.Node, rest string) {
	below, deeper := strings.CutPrefix(rest, envName(f.name)+envLevel)
	isSection := f.typ.Kind() == reflect.Map || section(f.typ) != nil
	switch {
	case isSection && deeper:
		m.find(path, f, node, below)
	case isSection && rest == envName(f.name):
		m.sections = append(m.sections, path)
	case rest == envName(f.name):
		m.keys = append(m.keys, path)
	}
}

// children yields the keys of a mapping that are plain names, with their values.
func children(node *yaml.Node) func(yield func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		node = resolve(node)
		if node == nil || node.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Kind == yaml.ScalarNode && !yield(node.Content[i].Value, node.Content[i+1]) {
				return
			}
		}
	}
}

// resolve follows an alias to its anchor. It returns nil for a null value: a
// key without a value counts as not given.
func resolve(node *yaml.Node) *yaml.Node {
	if node != nil && node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node == nil || node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" {
		return nil
	}
	return node
}
