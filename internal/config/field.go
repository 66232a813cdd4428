package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	sizeType     = reflect.TypeFor[Size]()
	secretType   = reflect.TypeFor[secret.Secret]()
)

// field is one key of a section, as its struct tags describe it.
type field struct {
	name     string
	index    []int
	typ      reflect.Type
	required bool
	// fallback is the default as it would stand in the file, if there is one.
	fallback    string
	hasFallback bool
	enum        []string
	// only are the variants of the section that know the key; none means all.
	only     []string
	min, max string
	// isURL is set if the value may hold a password between :// and @.
	isURL bool
	// isFile is set if the value names a file that must be readable.
	isFile bool
	// single is the name of a section that may be given without one, as an object
	// in the place of a map of named ones.
	single string
	// short is the key of a section that may be given as that key's value alone.
	short string
	doc   string
}

// fieldsOf returns the keys of a section in their order. Those of a struct that is inline
// are the section's own, and if that struct is of some variants only, so are its keys:
// variants may have keys of one name. The key that tells the variant, unless it lists its
// values, has those of the structs.
func fieldsOf(section reflect.Type) []field {
	fields := make([]field, 0, section.NumField())
	var variants []string
	for i := range section.NumField() {
		tag := section.Field(i).Tag
		name, option, _ := strings.Cut(tag.Get("yaml"), ",")
		if !section.Field(i).IsExported() || name == "-" {
			continue
		}
		if option == "inline" {
			for _, f := range fieldsOf(section.Field(i).Type) {
				f.index = append([]int{i}, f.index...)
				if f.only == nil {
					f.only = splitTag(tag.Get("only"))
				}
				for _, variant := range f.only {
					if !slices.Contains(variants, variant) {
						variants = append(variants, variant)
					}
				}
				fields = append(fields, f)
			}
			continue
		}
		f := field{
			name: name, index: []int{i}, typ: section.Field(i).Type,
			required: tag.Get("required") != "", isURL: tag.Get("url") != "", isFile: tag.Get("file") != "",
			enum: splitTag(tag.Get("enum")), only: splitTag(tag.Get("only")),
			single: tag.Get("single"), short: tag.Get("short"), min: tag.Get("min"), max: tag.Get("max"), doc: tag.Get("doc"),
		}
		f.fallback, f.hasFallback = tag.Lookup("default")
		fields = append(fields, f)
	}
	for i := range fields {
		if fields[i].enum == nil && isVariantKey(fields[i].name) {
			fields[i].enum = variants
		}
	}
	return fields
}

// ofVariant returns the keys that one variant of a section has: where its variant is not
// known, the first of each name.
func ofVariant(fields []field, variant string) []field {
	var own []field
	for _, f := range fields {
		isTwice := slices.ContainsFunc(own, func(other field) bool { return other.name == f.name })
		if f.of(variant) || variant == "" && !isTwice {
			own = append(own, f)
		}
	}
	return own
}

func splitTag(tag string) []string {
	if tag == "" {
		return nil
	}
	return strings.Split(tag, ",")
}

// of reports whether the key belongs to a variant of its section.
func (f field) of(variant string) bool {
	return len(f.only) == 0 || slices.Contains(f.only, variant)
}

// section returns the struct type where the key opens a section, else nil.
func section(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == secretType {
		return nil
	}
	return t
}

// set parses a value and stores it, if it is within the key's limits.
func (f field) set(v reflect.Value, text string) error {
	parsed, err := parse(f.typ, text)
	if err != nil {
		return err
	}
	if len(f.enum) > 0 && !slices.Contains(f.enum, text) {
		return fmt.Errorf("is not one of %s", strings.Join(f.enum, ", "))
	}
	if err := f.checkRange(parsed); err != nil {
		return err
	}
	v.Set(parsed)
	return nil
}

// parse reads a value of a scalar type. The errors complete a sentence that
// starts with the value.
func parse(t reflect.Type, text string) (reflect.Value, error) {
	v := reflect.New(t).Elem()
	switch {
	case t == durationType:
		d, err := ParseDuration(text)
		v.SetInt(int64(d))
		return v, err
	case t == sizeType:
		size, err := ParseSize(text)
		v.SetInt(int64(size))
		return v, err
	case t == secretType:
		if text != "" {
			v.Set(reflect.ValueOf(secret.Value(text)))
		}
		return v, nil
	case t.Kind() == reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return v, errors.New("is not a whole number")
		}
		v.SetInt(int64(n))
		return v, nil
	case t.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return v, errors.New("is not true or false")
		}
		v.SetBool(text == "true")
		return v, nil
	default:
		v.SetString(text)
		return v, nil
	}
}

// minDuration is the least of a duration that has no other limit: Redis' clock counts
// milliseconds.
const minDuration = "1ms"

func (f field) checkRange(v reflect.Value) error {
	least, most := f.min, f.max
	if f.typ == durationType {
		least = cmp.Or(least, minDuration)
	}
	if least != "" {
		if limit, err := parse(f.typ, least); err != nil || v.Int() < limit.Int() {
			return fmt.Errorf("is too small, allowed are %s", allowed(least, most))
		}
	}
	if most != "" {
		if limit, err := parse(f.typ, most); err != nil || v.Int() > limit.Int() {
			return fmt.Errorf("is too large, allowed are %s", allowed(least, most))
		}
	}
	return nil
}

func allowed(least, most string) string {
	if most == "" {
		return least + " and more"
	}
	return least + " to " + most
}
