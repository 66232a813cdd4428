package access

import (
	"encoding/csv"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mostLines is how many lines a list of callers may have: a call looks at all of them.
const mostLines = 1000

// attributes are what a credential says of its caller: what a JWT calls claims, or the names in a
// certificate.
type attributes map[string]any

// values are those of an attribute: one, or each of a list; none if it is not there. The name may lead
// into an object, as realm_access.roles does.
func (a attributes) values(name string) []string {
	value, ok := a[name]
	if !ok {
		return a.inner(name)
	}
	switch v := value.(type) {
	case []any:
		var all []string
		for _, one := range v {
			if text, ok := textOf(one); ok {
				all = append(all, text)
			}
		}
		return all
	case string:
		if name == "scope" { // A list with blanks, by RFC 8693.
			return strings.Fields(v)
		}
	}
	if text, ok := textOf(value); ok {
		return []string{text}
	}
	return nil
}

// inner looks into the objects whose name is a part of the name: names have dots themselves, as kubernetes.io.
func (a attributes) inner(name string) []string {
	for at, c := range name {
		if object, ok := a[name[:at]].(map[string]any); ok && c == '.' {
			if values := attributes(object).values(name[at+1:]); len(values) > 0 {
				return values
			}
		}
	}
	return nil
}

func textOf(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	default:
		return "", false
	}
}

// condition asks for an attribute.
type condition struct {
	attribute string
	value     *regexp.Regexp
}

func (c condition) holds(a attributes) bool {
	return slices.ContainsFunc(a.values(c.attribute), c.value.MatchString)
}

// line says what callers with certain attributes may do.
type line struct {
	conditions []condition
	allowance
}

// lines are a list of callers; the first line whose conditions hold counts.
type lines []line

// parseLines reads a list of callers, each as
//
//	ATTRIBUTE=VALUE [ATTRIBUTE=VALUE …] ROLE [name=NAME] [queues=A,B] [topics=X,Y] [rate=N]
//
// In a value * stands for any characters. A field with a space in it stands in double quotes.
func parseLines(texts []string) (lines, error) {
	if len(texts) > mostLines {
		return nil, fmt.Errorf("has %d lines, allowed are %d", len(texts), mostLines)
	}
	var all lines
	var problems []error
	for i, text := range texts {
		l, err := parseLineOf(text)
		if err != nil {
			problems = append(problems, fmt.Errorf("line %d: %w", i+1, err))
		}
		all = append(all, l)
	}
	return all, errors.Join(problems...)
}

func parseLineOf(text string) (l line, err error) {
	reader := csv.NewReader(strings.NewReader(text))
	reader.Comma = ' '
	fields, err := reader.Read()
	if err != nil || reader.InputOffset() < int64(len(text)) {
		return l, fmt.Errorf("%q cannot be read: give fields with spaces between, and a field that has a space in double quotes", text)
	}
	fields = slices.DeleteFunc(fields, func(s string) bool { return s == "" })
	for len(fields) > 0 && strings.Contains(fields[0], "=") {
		attribute, value, _ := strings.Cut(fields[0], "=")
		if attribute == "" || value == "" {
			return l, fmt.Errorf("%q must have an attribute and a value", fields[0])
		}
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(value), `\*`, "(?s:.*)") + "$"
		l.conditions = append(l.conditions, condition{attribute, regexp.MustCompile(pattern)}) // What is quoted is a pattern.
		fields = fields[1:]
	}
	if len(l.conditions) == 0 {
		return l, errors.New("must begin with ATTRIBUTE=VALUE; sub=* is everybody")
	}
	if len(fields) == 0 || !slices.Contains(roles, Role(fields[0])) {
		return l, errors.New("must have a role after the attributes: producer, viewer or operator")
	}
	l.allowance, err = parseAllowance(fields)
	return l, err
}

// match returns what the attributes are allowed, or else an error that says which are asked for,
// without their values.
func (ls lines) match(a attributes) (*allowance, error) {
	var asked, missing []string
	for i := range ls {
		fits := true
		for _, c := range ls[i].conditions {
			fits = fits && c.holds(a)
			list := &asked
			if len(a.values(c.attribute)) == 0 {
				list = &missing
			}
			if !slices.Contains(*list, c.attribute) {
				*list = append(*list, c.attribute)
			}
		}
		if fits {
			return &ls[i].allowance, nil
		}
	}
	said := "no line of its callers fits"
	if len(asked) > 0 {
		said += ": none has the values of " + strings.Join(asked, ", ")
	}
	if len(missing) > 0 {
		said += "; the attribute " + strings.Join(missing, ", ") + " is missing"
	}
	return nil, errors.New(said)
}
