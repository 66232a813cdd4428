package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/recurring"
)

// Huma checks what it reads from types, with error texts of its own. The SDK checks the limits
// of a message, with errors that name field, value and limit; so these limits are in a
// separate description, by which nothing is checked. No limit refuses a request that is valid
// by it, except that it counts the letters of a text where the limits are in bytes.

// newDescription is an OpenAPI document without calls.
func newDescription(version string) *huma.OpenAPI {
	return &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info:    &huma.Info{Title: "delaybridge", Version: version, Description: "Messages that are published later, unless they are cancelled."},
		Servers: []*huma.Server{{URL: base}},
		Components: &huma.Components{
			Schemas:         huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
			SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}},
			Responses:       map[string]*huma.Response{},
		},
		Security: []map[string][]string{{"token": {}}, {}},
	}
}

// nowhere serves nothing.
type nowhere struct{}

func (nowhere) Handle(*huma.Operation, func(huma.Context))       {}
func (nowhere) ServeHTTP(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }

// describe adds a call to the description.
func describe[I, O any](c *core, op huma.Operation) {
	huma.Register(c.described, op, func(context.Context, *I) (*O, error) { return new(O), nil })
}

// description is the whole of it, when all calls are there.
func (c *core) description() *huma.OpenAPI {
	doc := c.described.OpenAPI()
	describeLimits(doc)
	describeRequests(doc)
	describeResponses(doc)
	return doc
}

// limit puts a limit into a property's schema.
type limit func(*huma.Schema)

func length(least, most int) limit {
	return func(s *huma.Schema) { s.MinLength, s.MaxLength = &least, &most }
}

func like(pattern string) limit { return func(s *huma.Schema) { s.Pattern = pattern } }

func format(name string) limit { return func(s *huma.Schema) { s.Format = name } }

// Patterns of texts, in what Go and ECMAScript share.
const (
	control = `\x00-\x1f\x7f-\x9f`
	// isName has no control characters and no outer spaces; a header's value may have tabs.
	isName    = `^([^\s` + control + `]([^` + control + `]*[^\s` + control + `])?)?$`
	isValue   = `^([^\s` + control + `]([^\x00-\x08\x0a-\x1f\x7f-\x9f]*[^\s` + control + `])?)?$`
	isTag     = `^[^\s,` + control + `]+$`
	isHeader  = `^[!-9;-~]+$`
	isTopic   = `^[^` + control + `]+$`
	isBase64  = `^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$`
	inUnits   = `([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h|d|w))+`
	isDelay   = `^(0|` + inUnits + `)$`
	isShift   = `^[+-]?(0|` + inUnits + `)$`
	isASCII   = `^[ -~]+$`
	mostTopic = 255
	// mostPayload is the largest max_message that a queue may have.
	mostPayload = 16 << 20
)

// limits are those of properties and parameters, by the name of the schema, or of a parameter's
// place, and by their own.
var limits = map[string]map[string][]limit{
	"When": {"in": {like(isDelay)}, "at": {format("date-time")}, "spread": {like(isDelay)}},
	"Schedule": {
		"in": {like(isDelay)}, "at": {format("date-time")}, "spread": {like(isDelay)}, "max_wait": {like(isDelay)},
		"id":    {length(1, message.MaxIDLength), like(isName)},
		"key":   {length(0, message.MaxKeyLength), like(isName)},
		"topic": {length(1, mostTopic), like(isTopic)},
		"body":  {length(0, mostPayload)},
		"body_base64": {length(0, base64.StdEncoding.EncodedLen(mostPayload)), like(isBase64), func(s *huma.Schema) {
			s.ContentEncoding = "base64"
		}},
		"headers": {headersLimit},
		"tags":    {tagsLimit},
	},
	"Recurring": {
		"key":   {length(0, message.MaxKeyLength), like(isName)},
		"topic": {length(1, mostTopic), like(isTopic)},
		"body":  {length(0, recurring.MaxTemplate)},
		"body_base64": {length(0, base64.StdEncoding.EncodedLen(recurring.MaxTemplate)), like(isBase64), func(s *huma.Schema) {
			s.ContentEncoding = "base64"
		}},
		"headers": {headersLimit}, "tags": {tagsLimit}, "jitter": {like(isDelay)}, "until": {format("date-time")},
	},
	"Late":           {"after": {like(isDelay)}},
	"LevelInputBody": {"for": {like(isDelay)}},
	"JobInputBody":   {"in": {like(isDelay)}, "at": {format("date-time")}, "by": {like(isShift)}},
	"path":           {"id": {length(1, message.MaxIDLength), like(isName)}},
	"query":          {"key": {length(0, message.MaxKeyLength), like(isName)}, "step": {like(isDelay)}, "within": {like(isDelay)}},
	"header":         {idempotencyHeader: {length(1, mostIdempotencyKey+2), like(isASCII)}}, // with its quotes
}

func headersLimit(s *huma.Schema) {
	most := message.MaxHeaders
	s.MaxProperties = &most
	s.AdditionalProperties = &huma.Schema{Type: huma.TypeString, Pattern: isValue}
	s.Extensions = map[string]any{"propertyNames": map[string]any{"minLength": 1, "maxLength": message.MaxHeaderName, "pattern": isHeader}}
	s.Description += " Names of delay-*, nats-*, CC and BCC are reserved."
}

func tagsLimit(s *huma.Schema) {
	most := message.MaxTags
	s.MaxItems, s.Nullable = &most, false
	length(1, message.MaxTagLength)(s.Items)
	like(isTag)(s.Items)
}

// has is an object that has all of these members, and oneOf a choice of objects that have one.
func has(names ...string) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeObject, Required: names, Properties: map[string]*huma.Schema{}}
	for _, name := range names {
		s.Properties[name] = &huma.Schema{}
	}
	return s
}

func oneOf(names ...string) (choice []*huma.Schema) {
	for _, name := range names {
		choice = append(choice, has(name))
	}
	return choice
}

// describeLimits adds our own checks of requests to the description.
func describeLimits(doc *huma.OpenAPI) {
	schemas := doc.Components.Schemas.Map()
	for name, properties := range limits {
		for property, all := range properties {
			for _, put := range all {
				if schema := schemas[name]; schema != nil {
					put(schema.Properties[property])
				}
			}
		}
	}
	least := 1
	schemas["Filter"].MinProperties = &least
	schemas["When"].OneOf, schemas["Schedule"].OneOf = oneOf("in", "at"), oneOf("in", "at")
	schemas["Schedule"].Not = has("body", "body_base64")
	schemas["Schedule"].Description = fmt.Sprintf("Lengths are of bytes in UTF-8. Id, key, topic, headers and payload have together "+
		"at most the max_message of the queue, %d bytes by default.", message.DefaultMaxSize)
	schemas["Problem"].Properties["code"].Enum = anyOf(slices.Sorted(maps.Keys(meanings)))
}

func anyOf(names []string) (values []any) {
	for _, name := range names {
		values = append(values, name)
	}
	return values
}

// meanings are those of the codes of problems.
var meanings = map[string]string{
	"invalid":               "outside a limit, or not known; field names what",
	"unauthorized":          "no token or certificate, or not a valid one; detail says why",
	"forbidden":             "the caller may not do this",
	"read_only":             "nobody may change anything here",
	"not_found":             "there is no such message, queue, job, recurring schedule or call",
	"method_not_allowed":    "the call is there with another method; Allow has them",
	"duplicate":             "the identity is taken",
	"too_late":              "the message is being published right now",
	"key_in_use":            "the first request under the Idempotency-Key is under way",
	"key_reused":            "the Idempotency-Key was used for another request",
	"many_paused":           "too many topics of the queue are paused already",
	"many_recurring":        "the queue has too many recurring schedules already",
	"many_jobs":             "too many jobs of the queue are open already",
	"many_queues":           "as many queues are declared as the configuration allows, or so large ones",
	"declared_elsewhere":    "a file declares the queue, or something that a file declares depends on it",
	"not_empty":             "the queue has messages",
	"precondition_failed":   "the queue is declared otherwise than If-Match or If-None-Match says",
	"precondition_required": "If-Match is missing",
	"rate_limited":          "more calls than the caller may make, or more at once than there is room for",
	"unavailable":           "Redis was not reached, or the keys of the token's issuer are not there; nothing was done",
	"no_layout":             "no bridge has made the queue yet; nothing was done",
	"unknown":               "the reply was lost: it may have been done, or not",
	"full":                  "Redis is full, or the queue's budget is used up; nothing was done",
	"failed":                "anything else; the log has it",
}

// own are the codes that only some calls answer, by status; what all calls of a kind may
// answer is in problemsOf.
var own = map[string]map[int][]string{
	"schedule":      {http.StatusConflict: {"duplicate", "too_late", "key_in_use"}, http.StatusUnprocessableEntity: {"key_reused"}},
	"scheduleBatch": {http.StatusConflict: {"key_in_use"}, http.StatusUnprocessableEntity: {"key_reused"}},
	"cancel":        {http.StatusConflict: {"too_late"}},
	"reschedule":    {http.StatusConflict: {"too_late"}},
	"publishNow":    {http.StatusConflict: {"too_late"}},
	"pause":         {http.StatusConflict: {"many_paused"}},
	"setRecurring":  {http.StatusConflict: {"many_recurring"}},
	"declare": {
		http.StatusConflict: {"declared_elsewhere", "many_queues"}, http.StatusPreconditionFailed: {"precondition_failed"},
		http.StatusPreconditionRequired: {"precondition_required"},
	},
	"deleteDeclaration": {
		http.StatusConflict: {"declared_elsewhere", "not_empty"}, http.StatusPreconditionFailed: {"precondition_failed"},
		http.StatusPreconditionRequired: {"precondition_required"},
	},
	"cancelAll":     {http.StatusConflict: {"many_jobs"}},
	"rescheduleAll": {http.StatusConflict: {"many_jobs"}},
	"redriveAll":    {http.StatusConflict: {"many_jobs"}},
	"purgeAll":      {http.StatusConflict: {"many_jobs"}},
}

// problemsOf are the codes that a call may answer, by status.
func problemsOf(op *huma.Operation) map[int][]string {
	all := map[int][]string{
		http.StatusBadRequest: {"invalid"}, http.StatusUnauthorized: {"unauthorized"}, http.StatusForbidden: {"forbidden"},
		http.StatusTooManyRequests: {"rate_limited"}, http.StatusInternalServerError: {"failed"},
		// A body may be sent with any call, and is then read.
		http.StatusRequestTimeout: {"invalid"}, http.StatusRequestEntityTooLarge: {"invalid"}, http.StatusUnsupportedMediaType: {"invalid"},
		// A caller may be unknown while its issuer is away.
		http.StatusServiceUnavailable: {"unavailable"},
	}
	isChange := op.Method != http.MethodGet
	if isChange {
		all[http.StatusForbidden] = []string{"forbidden", "read_only"}
	}
	if op.Path != "/log-level" {
		all[http.StatusServiceUnavailable] = []string{"unavailable", "no_layout"}
		if isChange {
			all[http.StatusGatewayTimeout] = []string{"unknown"}
		}
		if isChange && !strings.Contains(op.Path, "/messages/{id}") { // What frees memory, Redis takes when it is full.
			all[http.StatusInsufficientStorage] = []string{"full"}
		}
	}
	if strings.Contains(op.Path, "{") || op.Path == "/audit" || op.Path == "/declarations" {
		all[http.StatusNotFound] = []string{"not_found"}
	}
	maps.Copy(all, own[op.OperationID])
	return all
}

// describeResponses adds the answers beside the usual one: of calls that fail, and 201.
func describeResponses(doc *huma.OpenAPI) {
	text := func(description string) *huma.Param {
		return &huma.Header{Description: description, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	id := text("The request's name, as the log has it: the caller's, or a new one.")
	for op := range operations(doc) {
		if op.Metadata[metaCreates] == true {
			created := *op.Responses["200"]
			created.Description = http.StatusText(http.StatusCreated)
			op.Responses["201"] = &created
		}
		for _, response := range op.Responses {
			if response.Headers == nil {
				response.Headers = map[string]*huma.Header{}
			}
			response.Headers[requestID] = id
		}
		delete(op.Responses, "default")
		for status, codes := range problemsOf(op) {
			name := fmt.Sprintf("%d_%s", status, strings.Join(codes, "_"))
			op.Responses[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + name}
			if doc.Components.Responses[name] == nil {
				response := problemResponse(codes)
				response.Headers = map[string]*huma.Header{requestID: id}
				for header := range newProblem(status, "", "").GetHeaders() {
					response.Headers[header] = text("In how many seconds to call again.")
				}
				doc.Components.Responses[name] = response
			}
		}
	}
}

func problemResponse(codes []string) *huma.Response {
	told := make([]string, len(codes))
	for i, code := range codes {
		told[i] = code + ": " + meanings[code]
	}
	return &huma.Response{
		Description: strings.Join(told, "; ") + ".",
		Content: map[string]*huma.MediaType{"application/problem+json": {Schema: &huma.Schema{AllOf: []*huma.Schema{
			{Ref: "#/components/schemas/Problem"},
			{Type: huma.TypeObject, Properties: map[string]*huma.Schema{"code": {Type: huma.TypeString, Enum: anyOf(codes)}}},
		}}}},
	}
}

// operations are the calls of a document.
func operations(doc *huma.OpenAPI) func(func(*huma.Operation) bool) {
	return func(yield func(*huma.Operation) bool) {
		for _, item := range doc.Paths {
			for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Delete} {
				if op != nil && !yield(op) {
					return
				}
			}
		}
	}
}

// describeRequests adds our own checks of parameters and bodies to the calls.
func describeRequests(doc *huma.OpenAPI) {
	for op := range operations(doc) {
		for _, p := range op.Parameters {
			for _, put := range limits[p.In][p.Name] {
				put(p.Schema)
			}
		}
		if roles, _ := op.Metadata[metaRoles].([]access.Role); len(roles) > 0 {
			names := make([]string, len(roles))
			for i, role := range roles {
				names[i] = string(role)
			}
			op.Description = "Roles: " + strings.Join(names, ", ") + "."
		}
		body := op.RequestBody
		if body == nil {
			continue
		}
		bounds, _ := op.Metadata[metaBody].(bodyLimits)
		body.Description = fmt.Sprintf("At most %d bytes, and %d names and values.", bounds.bytes, bounds.names)
		media := body.Content["application/json"]
		switch op.OperationID {
		case "rescheduleAll":
			media.Schema = &huma.Schema{AllOf: []*huma.Schema{media.Schema, {Type: huma.TypeObject, OneOf: oneOf("in", "at", "by")}}}
		case "cancelAll", "redriveAll", "purgeAll":
			media.Schema = &huma.Schema{AllOf: []*huma.Schema{media.Schema, {Not: &huma.Schema{AnyOf: oneOf("in", "at", "by")}}}}
		}
	}
}
