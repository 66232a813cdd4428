package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
)

// decoder fills a configuration from the nodes of a YAML file. It is our own,
// and not the library's, for the line of every problem, the overrides and the
// variants of sections.
type decoder struct {
	*problems
	expander
	overrides overrides
}

// remover is a section that had other keys in an earlier release.
type remover interface {
	// removed says what took the key's place, "" of one that never was.
	removed(key string) string
}

// structure fills a section. node is nil if the file does not have it.
func (d *decoder) structure(path string, node *yaml.Node, v reflect.Value) {
	nodes := d.mapping(path, node)
	all := fieldsOf(v.Type())
	variant, of := d.variant(path, nodes, v, all)
	fields := ofVariant(all, variant)
	for _, f := range fields {
		if f.name != of {
			d.field(join(path, f.name), nodes.values[f.name], v.FieldByIndex(f.index), f)
		}
	}
	d.refuse(path, nodes.keys, v, all)
	pairSecrets(d.problems, path, v, fields)
	for _, f := range fields {
		if variant != "" || of == "" || f.name == of {
			d.require(path, v, f)
		}
	}
	for _, f := range ofVariant(all, "") {
		isOwn := slices.ContainsFunc(fields, func(own field) bool { return own.name == f.name })
		if full := join(path, f.name); !isOwn && d.given(full) {
			d.add(full, "is a key of %s %s, this one is %s", of, strings.Join(variantsOf(all, f.name), " and "), variant)
		}
	}
}

// variant fills the key that selects a section's variant, and returns both; "" of a
// section that has none.
func (d *decoder) variant(path string, nodes mapping, v reflect.Value, all []field) (value, key string) {
	s, ok := reflect.TypeAssert[variant](v)
	if !ok {
		return "", ""
	}
	_, key = s.variant()
	f := all[slices.IndexFunc(all, func(f field) bool { return f.name == key })]
	d.field(join(path, key), nodes.values[key], v.FieldByIndex(f.index), f)
	s, _ = reflect.TypeAssert[variant](v)
	return s.variant()
}

// variantsOf are those that have a key of that name.
func variantsOf(all []field, name string) (variants []string) {
	for _, f := range all {
		if f.name == name {
			variants = append(variants, f.only...)
		}
	}
	return variants
}

// refuse refuses the keys that the section has in no variant.
func (d *decoder) refuse(path string, keys []string, v reflect.Value, all []field) {
	var known []string
	for _, f := range all {
		if !slices.Contains(known, f.name) {
			known = append(known, f.name)
		}
	}
	for _, key := range keys {
		if slices.Contains(known, key) {
			continue
		}
		if r, ok := reflect.TypeAssert[remover](v); ok && r.removed(key) != "" {
			d.add(join(path, key), "%s", r.removed(key))
			continue
		}
		d.add(join(path, key), "unknown key, known are %s%s", strings.Join(known, ", "), DidYouMean(key, known))
	}
}

// mapping is a YAML mapping with its keys in the order of the file.
type mapping struct {
	keys   []string
	values map[string]*yaml.Node
}

func (d *decoder) mapping(path string, node *yaml.Node) mapping {
	result := mapping{values: map[string]*yaml.Node{}}
	node = resolve(node)
	if node == nil {
		return result
	}
	if node.Kind != yaml.MappingNode {
		d.addAt(place{line: node.Line}, path, "is %s, must be a section of keys", kindName(node))
		return result
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		at := place{line: key.Line}
		if key.Kind != yaml.ScalarNode {
			d.addAt(at, path, "has a key that is %s, must be a name", kindName(key))
			continue
		}
		if key.Value == "<<" && key.ShortTag() == "!!merge" {
			d.addAt(at, path, "merge keys (<<) are not supported")
			continue
		}
		full := join(path, key.Value)
		if _, twice := result.values[key.Value]; twice {
			d.addAt(at, full, "is given twice")
			continue
		}
		// A variable that gives the key a value is the better place to name.
		if !d.given(full) {
			d.places[full] = at
		}
		result.keys = append(result.keys, key.Value)
		result.values[key.Value] = value
	}
	return result
}

func kindName(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a section"
	case yaml.SequenceNode:
		return "a list"
	default:
		return "a single value"
	}
}

// field fills one key.
func (d *decoder) field(path string, node *yaml.Node, v reflect.Value, f field) {
	switch {
	case v.Kind() == reflect.Map && f.single != "" && isSingle(node):
		d.alone(path, node, v, f)
	case v.Kind() == reflect.Map:
		d.named(path, node, v)
	case v.Kind() == reflect.Pointer:
		if resolve(node) != nil || d.overrides.under(path) {
			v.Set(reflect.New(f.typ.Elem()))
			d.structure(path, node, v.Elem())
		}
	case section(f.typ) != nil:
		d.structure(path, long(node, f.short), v)
	case v.Kind() == reflect.Slice:
		d.list(path, node, v)
	default:
		d.scalar(path, node, v, f)
	}
}

// long is the section that a value stands for which was given in its place.
func long(node *yaml.Node, short string) *yaml.Node {
	if value := resolve(node); short == "" || value == nil || value.Kind != yaml.ScalarNode {
		return node
	}
	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: short, Line: node.Line}
	return &yaml.Node{Kind: yaml.MappingNode, Line: node.Line, Content: []*yaml.Node{key, node}}
}

// alone fills a map with the one section that was given without a name.
func (d *decoder) alone(path string, node *yaml.Node, v reflect.Value, f field) {
	if resolve(node) == nil && !d.overrides.under(path) {
		return
	}
	d.single[path] = true
	element := reflect.New(v.Type().Elem()).Elem()
	d.structure(path, node, element)
	v.Set(reflect.MakeMap(v.Type()))
	v.SetMapIndex(reflect.ValueOf(f.single), element)
}

// isSingle reports whether a section that may be an object or a map of named ones is the
// object: it has a value that is no section itself.
func isSingle(node *yaml.Node) bool {
	node = resolve(node)
	if node == nil || node.Kind != yaml.MappingNode || len(node.Content) == 0 {
		return true
	}
	for i := 1; i < len(node.Content); i += 2 {
		if value := resolve(node.Content[i]); value == nil || value.Kind != yaml.MappingNode {
			return true
		}
	}
	return false
}

// named fills a map from names to sections: the queues, the sinks.
func (d *decoder) named(path string, node *yaml.Node, v reflect.Value) {
	nodes := d.mapping(path, node)
	if len(nodes.keys) == 0 {
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	spelled := map[string]string{}
	for _, name := range nodes.keys {
		full := join(path, name)
		if !message.QueueName.MatchString(name) {
			d.add(full, "%q is no name: %s", name, nameRule)
			continue
		}
		if other, taken := spelled[envName(name)]; taken {
			d.add(full, "environment variables cannot tell it from %s, rename one", other)
		}
		spelled[envName(name)] = name
		element := reflect.New(v.Type().Elem()).Elem()
		d.structure(full, nodes.values[name], element)
		v.SetMapIndex(reflect.ValueOf(name), element)
	}
}

func (d *decoder) list(path string, node *yaml.Node, v reflect.Value) {
	if o, ok := d.overrides[path]; ok {
		v.Set(reflect.ValueOf(splitList(o.text)))
		return
	}
	node = resolve(node)
	if node == nil {
		return
	}
	if node.Kind != yaml.SequenceNode {
		d.addAt(place{line: node.Line}, path, "is %s, must be a list", kindName(node))
		return
	}
	for i, item := range node.Content {
		if text, ok := d.text(fmt.Sprintf("%s[%d]", path, i), item); ok {
			v.Set(reflect.Append(v, reflect.ValueOf(text)))
		}
	}
}

// splitList splits a comma list and drops empty items.
func splitList(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func (d *decoder) scalar(path string, node *yaml.Node, v reflect.Value, f field) {
	if o, ok := d.overrides[path]; ok {
		if err := f.set(v, o.text); err != nil {
			d.add(path, "%q %v", o.text, err)
		}
		return
	}
	if resolve(node) == nil {
		if f.hasFallback {
			// A default that does not parse is found by the tests.
			_ = f.set(v, f.fallback)
		}
		return
	}
	text, ok := d.text(path, node)
	if !ok {
		return
	}
	if err := f.set(v, text); err != nil {
		// The value as written: what a reference stands for may be a secret.
		d.addAt(place{line: node.Line}, path, "%q %v", resolve(node).Value, err)
	}
}

// text returns the expanded text of a single value.
func (d *decoder) text(path string, node *yaml.Node) (string, bool) {
	at := place{line: node.Line}
	node = resolve(node)
	if node == nil {
		d.addAt(at, path, "has no value")
		return "", false
	}
	if node.Kind != yaml.ScalarNode {
		d.addAt(at, path, "is %s, must be a single value", kindName(node))
		return "", false
	}
	if node.Style&yaml.TaggedStyle != 0 {
		d.addAt(at, path, "has the tag %s, tags are not supported", node.Tag)
		return "", false
	}
	text, err := d.expand(node.Value)
	if err != nil {
		d.addAt(at, path, "%v", err)
		return "", false
	}
	return text, true
}

// linkSecrets makes a secret read its file where only X_file is given.
func pairSecrets(p *problems, path string, v reflect.Value, fields []field) {
	for _, f := range fields {
		if f.typ != secretType {
			continue
		}
		i := slices.IndexFunc(fields, func(other field) bool { return other.name == f.name+"_file" })
		file := v.FieldByIndex(fields[i].index).String()
		if file == "" {
			continue
		}
		if current, ok := reflect.TypeAssert[secret.Secret](v.FieldByIndex(f.index)); ok && current.IsSet() {
			p.add(join(path, fields[i].name), "%s is given too, give one of them", f.name)
		}
		v.FieldByIndex(f.index).Set(reflect.ValueOf(secret.File(file)))
	}
}

// require asks for a key that must be given.
func (d *decoder) require(path string, v reflect.Value, f field) {
	full := join(path, f.name)
	fv := v.FieldByIndex(f.index)
	empty := fv.IsZero() || fv.Kind() == reflect.Map && fv.Len() == 0
	if f.required && empty && !d.reported(full) {
		d.add(full, "missing, must be given")
	}
}
