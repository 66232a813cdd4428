package config

import (
	"maps"
	"reflect"
	"slices"
)

// Diff returns the paths of the keys in which two configurations differ, in their order,
// such as queues.orders.rate.messages. A section that only one of them has is one path.
// Secrets in files that are named are not compared, nor the instances where neither
// configuration names its own.
func Diff(a, b *Config) []string {
	paths := []string{}
	diff("", reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), func(path string) {
		if !slices.Contains(paths, path) { // Of a sink of another type.
			paths = append(paths, path)
		}
	})
	if !a.named && !b.named {
		paths = slices.DeleteFunc(paths, func(path string) bool { return path == "instance" })
	}
	return paths
}

func diff(path string, a, b reflect.Value, found func(path string)) {
	switch {
	case a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil():
		diff(path, a.Elem(), b.Elem(), found)
	case a.Kind() == reflect.Map:
		names := map[string]bool{}
		for _, name := range slices.Concat(a.MapKeys(), b.MapKeys()) {
			names[name.String()] = true
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			in, other := a.MapIndex(reflect.ValueOf(name)), b.MapIndex(reflect.ValueOf(name))
			if !in.IsValid() || !other.IsValid() {
				found(path + "." + name)
				continue
			}
			diff(path+"."+name, in, other, found)
		}
	case section(a.Type()) != nil && a.Kind() == reflect.Struct:
		for _, f := range fieldsOf(a.Type()) {
			key := f.name
			if path != "" {
				key = path + "." + f.name
			}
			diff(key, a.FieldByIndex(f.index), b.FieldByIndex(f.index), found)
		}
	case !reflect.DeepEqual(a.Interface(), b.Interface()):
		found(path)
	}
}
