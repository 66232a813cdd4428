package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// reference is what every value but a section may be instead, in the schema's eyes.
const reference = `\$\{`

// tlsDocs describes the keys of a TLS section, whose type is not ours to tag.
var tlsDocs = map[string]string{
	"ca_file":              "File with the certificates that sign the server's. Default: the system's. It is read at each connect.",
	"cert_file":            "File with our certificate, for servers that ask for one. It is read at each connect.",
	"key_file":             "File with the key of our certificate.",
	"server_name":          "Name that the server's certificate must have. Default: the host that we connect to.",
	"insecure_skip_verify": "Takes any certificate. Never in production.",
}

// Schema returns the JSON Schema of the configuration file.
func Schema() ([]byte, error) {
	reflector := jsonschema.Reflector{
		FieldNameTag: "yaml", Anonymous: true, DoNotReference: true, RequiredFromJSONSchemaTags: true,
		Mapper: scalarSchema,
	}
	root := reflector.Reflect(&Config{})
	root.Title = "delaybridge configuration"
	describe(root, reflect.TypeFor[Config]())
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode schema: %w", err)
	}
	return append(text, '\n'), nil
}

// scalarSchema is the schema of our own types, and of values that may be given
// as a reference; nil leaves a type to the library.
func scalarSchema(t reflect.Type) *jsonschema.Schema {
	ref := &jsonschema.Schema{Type: "string", Pattern: reference}
	switch {
	case t == durationType:
		return &jsonschema.Schema{Type: "string", Pattern: `^([0-9.]+(ns|us|µs|ms|s|m|h|d|w))+$|` + reference}
	case t == sizeType:
		sized := &jsonschema.Schema{Type: "string", Pattern: `^[0-9]+ ?(GiB|MiB|KiB|GB|MB|kB|KB|B)?$|` + reference}
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "integer", Minimum: "1"}, sized}}
	case t == secretType:
		return &jsonschema.Schema{Type: "string"}
	case t.Kind() == reflect.Int:
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "integer"}, ref}}
	case t.Kind() == reflect.Bool:
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "boolean"}, ref}}
	default:
		return nil
	}
}

// describe adds to the schema of a section what our own tags say.
func describe(schema *jsonschema.Schema, t reflect.Type) {
	var variants []string
	for _, f := range fieldsOf(t) {
		property, ok := schema.Properties.Get(f.name)
		if !ok {
			continue
		}
		doc := cmp.Or(f.doc, tlsDocs[f.name])
		if !strings.Contains(property.Description, doc) { // Variants may have keys of one name.
			property.Description = strings.TrimSpace(property.Description + " " + doc)
		}
		limit(property, f)
		switch {
		case f.typ.Kind() == reflect.Map:
			describe(property.AdditionalProperties, f.typ.Elem())
			named := jsonschema.Schema{
				Type: property.Type, AdditionalProperties: property.AdditionalProperties,
				PropertyNames: &jsonschema.Schema{Pattern: message.QueueName.String()},
			}
			if f.single == "" {
				named.Description = property.Description
				*property = named
				break
			}
			*property = jsonschema.Schema{
				Description: property.Description, AnyOf: []*jsonschema.Schema{property.AdditionalProperties, &named},
			}
		case section(f.typ) != nil:
			describe(property, section(f.typ))
			if f.short != "" {
				whole := *property
				*property = jsonschema.Schema{Description: whole.Description, AnyOf: []*jsonschema.Schema{{Type: "string"}, &whole}}
			}
		}
		if f.required && len(f.only) == 0 {
			schema.Required = append(schema.Required, f.name)
		}
		if isVariantKey(f.name) {
			variants = f.enum
		}
	}
	for _, variant := range variants {
		schema.AllOf = append(schema.AllOf, variantSchema(t, variant))
	}
}

// limit adds the default and the allowed values of a key.
func limit(property *jsonschema.Schema, f field) {
	if len(f.enum) > 0 {
		values := &jsonschema.Schema{}
		for _, value := range f.enum {
			values.Enum = append(values.Enum, value)
		}
		property.AnyOf = []*jsonschema.Schema{values, {Pattern: reference}}
	}
	if f.hasFallback {
		property.Default = f.fallback
		if n, err := strconv.Atoi(f.fallback); err == nil && f.typ.Kind() == reflect.Int {
			property.Default = n
		}
	}
	if f.typ.Kind() == reflect.Int && f.typ != sizeType {
		property.AnyOf[0].Minimum, property.AnyOf[0].Maximum = json.Number(f.min), json.Number(f.max)
	}
}

// isVariantKey reports whether a key decides which others its section has.
func isVariantKey(name string) bool { return name == "type" || name == "mode" || name == "driver" }

// variantSchema says which keys one variant of a section needs and refuses.
func variantSchema(t reflect.Type, variant string) *jsonschema.Schema {
	is, then := jsonschema.NewProperties(), &jsonschema.Schema{Properties: jsonschema.NewProperties()}
	result := &jsonschema.Schema{If: &jsonschema.Schema{Properties: is}, Then: then}
	for _, f := range fieldsOf(t) {
		switch {
		case isVariantKey(f.name):
			is.Set(f.name, &jsonschema.Schema{Const: variant})
			if !f.hasFallback || f.fallback != variant {
				result.If.Required = []string{f.name}
			}
		case !slices.ContainsFunc(ofVariant(fieldsOf(t), variant), func(own field) bool { return own.name == f.name }):
			then.Properties.Set(f.name, jsonschema.FalseSchema)
		case f.required && f.of(variant) && len(f.only) > 0:
			then.Required = append(then.Required, f.name)
		}
	}
	return result
}
