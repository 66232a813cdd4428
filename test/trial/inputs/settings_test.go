package inputs

import (
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
)

// configLeaf is a key of the configuration, with what its tags say of it.
type configLeaf struct {
	path []string
	typ  reflect.Type
	tag  reflect.StructTag
}

// configLeaves are all keys that goodConfig may have.
func configLeaves() (list []configLeaf) {
	walkConfig(reflect.TypeFor[config.Config](), nil, func(l configLeaf) { list = append(list, l) }, func([]string) {})
	return list
}

// configSections are the paths of all sections but those of files.
func configSections() (list [][]string) {
	walkConfig(reflect.TypeFor[config.Config](), nil, func(configLeaf) {}, func(path []string) { list = append(list, path) })
	return list
}

// named are the sections of goodConfig that have a name, with their variant.
var named = map[string]map[string]string{
	"queues": {"orders": "memory", "bills": "replicas", "mails": "memory"},
	"sinks":  {"nats": "nats", "rabbitmq": "rabbitmq", "kafka": "kafka", "streams": "redis"},
	"outbox": {"main": "postgres"},
}

func walkConfig(t reflect.Type, path []string, leaf func(configLeaf), inside func([]string)) {
	inside(path)
	walkKeys(t, path, variantOf(path), leaf, inside)
}

// variantOf is the variant of the section in goodConfig.
func variantOf(path []string) string {
	switch {
	case len(path) == 2: //nolint:mnd // as queues.orders
		return named[path[0]][path[1]]
	case len(path) == 1 && path[0] == "redis":
		return "standalone"
	default:
		return ""
	}
}

func walkKeys(t reflect.Type, path []string, variant string, leaf func(configLeaf), inside func([]string)) {
	for field := range t.Fields() {
		if !field.IsExported() {
			continue
		}
		name, option, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		only := field.Tag.Get("only")
		if name == "-" || only != "" && !slices.Contains(strings.Split(only, ","), variant) {
			continue
		}
		if option == "inline" {
			walkKeys(field.Type, path, variant, leaf, inside)
			continue
		}
		below, typ := append(slices.Clone(path), name), field.Type
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		switch {
		case typ.Kind() == reflect.Map:
			for section := range named[name] {
				walkConfig(typ.Elem(), append(slices.Clone(below), section), leaf, inside)
			}
		case typ.Kind() == reflect.Struct && typ != reflect.TypeFor[secret.Secret]():
			walkConfig(typ, below, leaf, inside)
		default:
			leaf(configLeaf{below, typ, field.Tag})
		}
	}
}

// badValues are outside of what the key's type and tags allow.
func (l *configLeaf) badValues() (list []any) {
	list = []any{section{"a": "b"}}
	if l.typ.Kind() != reflect.Slice {
		list = append(list, []any{}, []any{"a"})
	}
	if enum := l.tag.Get("enum"); enum != "" {
		return append(list, "bogus", "", strings.ToUpper(enum), enum, 7, " "+strings.Split(enum, ",")[0])
	}
	switch {
	case l.typ == reflect.TypeFor[time.Duration]():
		list = append(list, l.badDurations()...)
	case l.typ == reflect.TypeFor[config.Size]():
		list = append(list, "x", "", "-1", "1XB", "1.5MiB", "1e3", "NaN", "99999999999999999999", "9999999999GiB", "-1GiB", "KiB")
		list = append(list, beyond(l.tag, func(text string) (int64, error) { n, err := config.ParseSize(text); return int64(n), err })...)
	case l.typ.Kind() == reflect.Int:
		list = append(list, "x", "", "NaN", "1.5", "1e3", "0x10", "1_000", "99999999999999999999", "-99999999999999999999", 1.5, true, math.MaxFloat64)
		list = append(list, beyond(l.tag, func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) })...)
	case l.typ.Kind() == reflect.Bool:
		list = append(list, "yes", "no", "1", "0", "TRUE", "", 1, "true ")
	case l.typ.Kind() == reflect.Slice:
		list = append(list, "text", 7, []any{[]any{}}, []any{section{}}, []any{nil})
	}
	return list
}

// beyond is just below the least and just above the most.
func beyond(tag reflect.StructTag, parse func(string) (int64, error)) (list []any) {
	if least, err := parse(tag.Get("min")); err == nil {
		list = append(list, strconv.FormatInt(least-1, 10), strconv.FormatInt(math.MinInt64, 10))
	}
	if most, err := parse(tag.Get("max")); err == nil {
		list = append(list, strconv.FormatInt(most+1, 10), strconv.FormatInt(math.MaxInt64, 10))
	}
	return list
}

// badDurations are none, or outside of the limits; without a limit, 1 ms is the least.
func (l *configLeaf) badDurations() (list []any) {
	for _, text := range badDurations() {
		if !strings.ContainsRune(text, 0) { // There is none in the environment.
			list = append(list, text)
		}
	}
	list = append(list, "", "-1s", "-1w", "-1ns", 7, true)
	least := time.Millisecond
	if text := l.tag.Get("min"); text != "" {
		least, _ = config.ParseDuration(text) // The tests of the package parse all tags.
	}
	if least > 0 {
		list = append(list, "0s", (least - 1).String())
	}
	if most, err := config.ParseDuration(l.tag.Get("max")); err == nil {
		list = append(list, (most + 1).String(), "20000w")
	}
	return list
}
