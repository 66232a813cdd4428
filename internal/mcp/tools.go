package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// leftOut are the calls that are no tools, and why.
var leftOut = map[string]string{
	"events":            "it is a stream",
	"schedule":          "a model does not decide what is published, and where",
	"scheduleBatch":     "as schedule",
	"setRecurring":      "as schedule",
	"declare":           "which queues there are, teams decide",
	"cancelTagged":      "cancelAll does the same as a job, with a dry run",
	"deleteDeclaration": "as declare",
	"demand":            "it is for autoscalers, and forecast says more",
	"logLevel":          "it is about the process",
	"setLogLevel":       "it is about the process",
}

// destructive are the calls whose effect nothing can undo.
var destructive = []string{"cancel", "cancelAll", "purgeAll", "deleteRecurring"}

// private are the members of messages that are shown only if that was asked for.
var private = []string{"headers", "body", "body_base64"}

// Ask makes a call of the API, and returns its answer. body is nil if there is none. An answer that is an error is an error.
type Ask func(ctx context.Context, method, path string, body []byte) ([]byte, error)

// Options say what a model may do and see.
type Options struct {
	// Write offers the tools that change something; the bridge decides by the caller's role who may use them.
	Write bool
	// Bodies shows the bodies and headers of messages.
	Bodies bool
}

// Tools are the calls of the API that a model may make.
type Tools struct {
	list   []*tool
	ask    Ask
	bodies bool
}

// tool is a call of the API.
type tool struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	InputSchema map[string]any `json:"inputSchema"`
	Annotations annotations    `json:"annotations"`

	method, path string
	query        []string // names
	hasBody      bool
}

// annotations tell the client when to ask the user.
type annotations struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
	OpenWorld   bool `json:"openWorldHint"`
}

// document is what is needed of an OpenAPI document.
type document struct {
	Servers    []struct{ URL string }
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]any }
}

type operation struct {
	OperationID, Summary string
	Parameters           []struct {
		Name, In, Description string
		Required              bool
		Schema                map[string]any
	}
	RequestBody *struct {
		Content map[string]struct{ Schema map[string]any }
	}
}

// New makes the tools of the API that the OpenAPI document describes.
func New(openAPI []byte, options Options, ask Ask) (*Tools, error) {
	var doc document
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		return nil, fmt.Errorf("read the description of the API: %w", err)
	}
	if len(doc.Servers) == 0 {
		return nil, errors.New("the description of the API names no server")
	}
	t := &Tools{ask: ask, bodies: options.Bodies}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			isRead := strings.EqualFold(method, http.MethodGet)
			if leftOut[op.OperationID] == "" && (isRead || options.Write) {
				t.list = append(t.list, doc.tool(strings.ToUpper(method), doc.Servers[0].URL+path, &op, options.Bodies))
			}
		}
	}
	slices.SortFunc(t.list, func(a, b *tool) int { return strings.Compare(a.Name, b.Name) })
	return t, nil
}

func (d *document) tool(method, path string, op *operation, bodies bool) *tool {
	isRead := method == http.MethodGet
	t := &tool{
		Name: op.OperationID, Description: op.Summary + ".", method: method, path: path,
		Annotations: annotations{ReadOnly: isRead, Destructive: slices.Contains(destructive, op.OperationID)},
	}
	properties, required := map[string]any{}, []string{}
	for _, p := range op.Parameters {
		if p.In == "header" || isRead && p.Name == "body" && !bodies {
			continue
		}
		schema, _ := d.plain(p.Schema).(map[string]any)
		if schema["description"] == nil && p.Description != "" {
			schema["description"] = p.Description
		}
		properties[p.Name] = schema
		if p.Required {
			required = append(required, p.Name)
		}
		if p.In == "query" {
			t.query = append(t.query, p.Name)
		}
	}
	if op.RequestBody != nil {
		t.hasBody = true
		body, _ := d.plain(op.RequestBody.Content["application/json"].Schema).(map[string]any)
		members, _ := body["properties"].(map[string]any)
		maps.Copy(properties, members)
		names, _ := body["required"].([]any)
		for _, name := range names {
			required = append(required, fmt.Sprint(name))
		}
	}
	t.InputSchema = map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	return t
}

// plain is a schema as all clients understand it: without references, patterns and combinations. The bridge checks the request anyway, and
// its errors say what is wrong.
func (d *document) plain(schema any) any {
	switch s := schema.(type) {
	case map[string]any:
		if ref, ok := s["$ref"].(string); ok {
			return d.plain(d.Components.Schemas[ref[strings.LastIndexByte(ref, '/')+1:]])
		}
		if parts, ok := s["allOf"].([]any); ok { // The first is the schema, the others limit it.
			return d.plain(parts[0])
		}
		own := map[string]any{}
		for name, value := range s {
			if !slices.Contains([]string{"pattern", "oneOf", "anyOf", "not", "examples", "minProperties"}, name) {
				own[name] = d.plain(value)
			}
		}
		return own
	case []any:
		own := make([]any, len(s))
		for i, value := range s {
			own[i] = d.plain(value)
		}
		return own
	}
	return schema
}

func (t *Tools) find(name string) *tool {
	at := slices.IndexFunc(t.list, func(one *tool) bool { return one.Name == name })
	if at < 0 {
		return nil
	}
	return t.list[at]
}

// call makes the call of the API, and returns its answer without what is private.
func (t *Tools) call(ctx context.Context, one *tool, arguments map[string]json.RawMessage) (string, error) {
	path, body, err := one.request(arguments)
	if err != nil {
		return "", err
	}
	answer, err := t.ask(ctx, one.method, path, body)
	if err != nil || t.bodies {
		return string(answer), err
	}
	decoder := json.NewDecoder(bytes.NewReader(answer))
	decoder.UseNumber() // So that none is changed.
	var all any
	if err := decoder.Decode(&all); err != nil {
		return "", fmt.Errorf("the bridge's answer is no JSON: %w", err)
	}
	hide(all)
	shown, err := json.Marshal(all)
	return string(shown), err
}

// hide removes what is private.
func hide(value any) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range private {
			delete(v, name)
		}
		for _, member := range v {
			hide(member)
		}
	case []any:
		for _, member := range v {
			hide(member)
		}
	}
}

// request puts the arguments where the call wants them.
func (t *tool) request(arguments map[string]json.RawMessage) (path string, body []byte, err error) {
	path, query, members := t.path, url.Values{}, map[string]json.RawMessage{}
	for name, value := range arguments {
		properties, _ := t.InputSchema["properties"].(map[string]any)
		place := "{" + name + "}"
		switch {
		case properties[name] == nil:
			return "", nil, fmt.Errorf("%s has no argument %.64q", t.Name, name)
		case string(value) == "null": // As if it were not there.
			continue
		case !strings.Contains(t.path, place) && !slices.Contains(t.query, name):
			members[name] = value
			continue
		}
		text, err := plainText(name, value)
		if err != nil {
			return "", nil, err
		}
		if slices.Contains(t.query, name) {
			query.Set(name, text)
			continue
		}
		path = strings.Replace(path, place, escape(text), 1)
	}
	if at := strings.IndexByte(path, '{'); at >= 0 {
		return "", nil, fmt.Errorf("%s needs the argument %s", t.Name, strings.Trim(path[at:at+strings.IndexByte(path[at:], '}')], "{"))
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	if t.hasBody {
		body, err = json.Marshal(members)
	}
	return path, body, err
}

// plainText is an argument as a part of an address.
func plainText(name string, value json.RawMessage) (string, error) {
	switch value[0] {
	case '"':
		var text string
		err := json.Unmarshal(value, &text)
		return text, err
	case '{', '[':
		return "", fmt.Errorf("%s must be a text, a number, true or false", name)
	}
	return string(value), nil
}

// escape makes one part of a path of a text. Dots alone would mean another path.
func escape(part string) string {
	if part == "." || part == ".." {
		return strings.ReplaceAll(part, ".", "%2E")
	}
	return url.PathEscape(part)
}
