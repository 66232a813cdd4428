package config

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
)

// Print writes the configuration as it is in effect: a YAML file that [Load]
// takes again, with every default in it and the secrets masked, those inside
// URLs too. The queues of queue files are among the others.
func (c *Config) Print(w io.Writer) error {
	merged := *c
	if len(merged.Queues) > 0 {
		merged.QueueFiles = nil
	}
	if c.IsDeclaredByAPI() {
		merged.QueueFiles = map[string]QueueFiles{APISection: c.QueueFiles[APISection]}
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(sectionNode(reflect.ValueOf(merged))); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if err := encoder.Close(); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}

// sectionNode is the mapping of a section. Keys of other variants, and keys
// that have neither a value nor a default, are left out.
func sectionNode(v reflect.Value) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	value := ""
	if s, ok := reflect.TypeAssert[variant](v); ok {
		value, _ = s.variant()
	}
	fields := ofVariant(fieldsOf(v.Type()), value)
	for _, f := range fields {
		fv := v.FieldByIndex(f.index)
		if fv.IsZero() && !f.hasFallback || f.typ == secretType && hasFile(v, fields, f.name) {
			continue
		}
		node.Content = append(node.Content, textNode(f.name), valueNode(fv, f))
	}
	return node
}

// hasFile reports whether a secret comes from the file that its key X_file names.
func hasFile(v reflect.Value, fields []field, name string) bool {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == name+"_file" })
	return i >= 0 && !v.FieldByIndex(fields[i].index).IsZero()
}

func valueNode(v reflect.Value, f field) *yaml.Node {
	switch v.Kind() {
	case reflect.Map:
		if single := v.MapIndex(reflect.ValueOf(f.single)); single.IsValid() && v.Len() == 1 {
			return sectionNode(single)
		}
		return namedNode(v)
	case reflect.Pointer:
		return sectionNode(v.Elem())
	case reflect.Slice:
		return listNode(v)
	default:
		if section(v.Type()) != nil {
			return sectionNode(v)
		}
		return scalarNode(v, f)
	}
}

func namedNode(v reflect.Value) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	names := slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int {
		return cmp.Compare(a.String(), b.String())
	})
	for _, name := range names {
		node.Content = append(node.Content, textNode(name.String()), sectionNode(v.MapIndex(name)))
	}
	return node
}

func listNode(v reflect.Value) *yaml.Node {
	node := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for i := range v.Len() {
		node.Content = append(node.Content, textNode(escape(v.Index(i).String())))
	}
	return node
}

func scalarNode(v reflect.Value, f field) *yaml.Node {
	switch value := v.Interface().(type) {
	case time.Duration:
		return textNode(formatDuration(value))
	case Size:
		return plainNode(value.String())
	case secret.Secret:
		return textNode(value.String())
	case int:
		return plainNode(strconv.Itoa(value))
	case bool:
		return plainNode(strconv.FormatBool(value))
	default:
		text := v.String()
		if f.isURL {
			text = MaskURLs(text)
		}
		return textNode(escape(text))
	}
}

// textNode is a string, quoted where YAML would read it as something else.
func textNode(text string) *yaml.Node {
	node := &yaml.Node{}
	node.SetString(text)
	return node
}

func plainNode(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: text}
}

// escape protects dollars from being expanded when the text is loaded again.
func escape(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// Everything up to the last @ before the path is the login.
var urlLogin = regexp.MustCompile(`^([a-z]*://)?([^/?#]*)@`)

// MaskURLs masks the passwords in a URL or a comma list of URLs. A login
// without a password may be a token, as with NATS, and is masked whole.
func MaskURLs(list string) string {
	urls := strings.Split(list, ",")
	for i, u := range urls {
		u = strings.TrimSpace(u)
		urls[i] = urlLogin.ReplaceAllStringFunc(u, func(login string) string {
			parts := urlLogin.FindStringSubmatch(login)
			user, _, hasPassword := strings.Cut(parts[2], ":")
			if !hasPassword {
				return parts[1] + secret.Masked + "@"
			}
			return parts[1] + user + ":" + secret.Masked + "@"
		})
	}
	return strings.Join(urls, ",")
}
