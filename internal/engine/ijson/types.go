package ijson

import (
	"encoding/json"
	"reflect"
	"strings"
)

// decoded returns the type as which a value is read: nil if it is any, or decodes itself.
func decoded(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	return t
}

// object says which names an object may have, and the types of their values.
type object struct {
	fields map[string]reflect.Type // of a struct; nil: any name
	values reflect.Type            // of a map
}

func members(t reflect.Type) (o object) {
	switch {
	case t == nil:
	case t.Kind() == reflect.Map:
		o.values = t.Elem()
	case t.Kind() == reflect.Struct:
		o.fields = map[string]reflect.Type{}
		o.add(t)
	}
	return o
}

func (o object) add(t reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "" && field.Anonymous:
			o.add(decoded(field.Type))
		case name == "" && field.IsExported():
			o.fields[field.Name] = field.Type
		case field.IsExported() && name != "-":
			o.fields[name] = field.Type
		}
	}
}

// of returns the type of a member, and whether there may be one of that name.
func (o object) of(name string) (reflect.Type, bool) {
	if o.fields == nil {
		return o.values, true
	}
	t, isKnown := o.fields[name]
	return t, isKnown
}

// like returns the name that was meant, if only the capitals differ.
func (o object) like(name string) string {
	for field := range o.fields {
		if strings.EqualFold(field, name) {
			return ": it is called " + field
		}
	}
	return ""
}
