package inlet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/operate"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// The headers by which a message asks.
const (
	HeaderOp       = "delay-op"
	HeaderIn       = "delay-in"
	HeaderAt       = "delay-at"
	HeaderID       = message.HeaderID
	HeaderKey      = "delay-key"
	HeaderTopic    = "delay-topic"
	HeaderTags     = message.HeaderTags
	HeaderLate     = message.HeaderLate
	HeaderConflict = "delay-conflict"
	// HeaderXDelay is that of RabbitMQ's plugin, in milliseconds.
	HeaderXDelay = "x-delay"
)

// The operations.
const (
	OpSchedule   = "schedule"
	OpCancel     = "cancel"
	OpReschedule = "reschedule"
)

var ops = []string{OpSchedule, OpCancel, OpReschedule}

// ofPublished are headers of a published message that are of no use here: a consumer may
// publish to an inlet what it got.
var ofPublished = []string{
	message.HeaderUID, message.HeaderQueue, message.HeaderDueAt, message.HeaderScheduledAt, message.HeaderAttempt, message.HeaderFirstAt,
}

// Rules are what an inlet adds to what its messages say.
type Rules struct {
	Name string
	// Sink is the kind of broker that the inlet consumes from.
	Sink message.SinkType
	// Topic is where a message goes that does not say it.
	Topic string
	// Own is the topic that the inlet consumes, if its queue publishes to the same broker.
	Own string
}

// Operation is what a message asks.
type Operation struct {
	Op string
	delay.Ref

	When     operate.When
	Schedule operate.Schedule // without the due time

	// Name is the same each time that the broker delivers this message. Unless the broker
	// names positions, another message that is alike has it, too.
	Name    string
	IsAlike bool
}

// Parse reads what a message asks. Of what it refuses, the operation has what is known.
func Parse(d *source.Delivery, rules *Rules) (o Operation, refused *operate.Fault) {
	asked, own, refused := split(d, rules.Sink)
	o.Op = cmp.Or(asked[HeaderOp], OpSchedule)
	if !slices.Contains(ops, o.Op) {
		wrong := o.Op
		o.Op = ""
		if refused == nil {
			refused = invalid(HeaderOp, wrong, "must be schedule, cancel or reschedule")
		}
	}
	o.Name, o.IsAlike = nameOf(d, asked, own)
	o.Key = d.Key
	if key, isGiven := asked[HeaderKey]; isGiven {
		o.Key = key
	}
	if o.ID = cmp.Or(asked[HeaderID], d.MessageID, short(d.Position)); o.ID == "" && refused == nil {
		refused = &operate.Fault{Code: operate.CodeInvalid, Field: HeaderID, Detail: HeaderID + " is missing, and the message has no message-id"}
	}
	if refused == nil {
		refused = checkIdentity(o.Ref)
	}
	if refused != nil {
		return o, refused
	}
	if o.Op == OpCancel {
		return o, nil
	}
	if o.When, refused = due(asked, rules.Sink); refused != nil {
		return o, refused
	}
	if o.Op == OpSchedule {
		o.Schedule, refused = schedule(d, &o, asked, own, rules)
	}
	return o, refused
}

// split parts the headers that are for us, by their names in small letters, from the message's own.
func split(d *source.Delivery, sink message.SinkType) (asked, own map[string]string, refused *operate.Fault) {
	asked, own = map[string]string{}, map[string]string{}
	for name, value := range d.Headers {
		lower := strings.ToLower(name)
		switch {
		case lower == HeaderXDelay && sink == message.RabbitMQ:
			asked[HeaderXDelay] = value
		case slices.Contains(ofPublished, lower):
		case slices.Contains([]string{
			HeaderOp, HeaderIn, HeaderAt, HeaderID, HeaderKey, HeaderTopic, HeaderTags, HeaderLate, HeaderConflict,
		}, lower):
			asked[lower] = value
		case strings.HasPrefix(lower, "delay-"):
			refused = invalid(name, value, "is no header of an inlet")
		default:
			own[name] = value
		}
	}
	if d.Twice != "" {
		refused = &operate.Fault{Code: operate.CodeInvalid, Field: d.Twice, Detail: d.Twice + " is there more than once"}
	}
	return asked, own, refused
}

// short makes an id of a position.
func short(position string) string {
	if len(position) <= message.MaxIDLength {
		return position
	}
	return digest(position)
}

// nameOf names the message, by its position if the broker has told it.
func nameOf(d *source.Delivery, asked, own map[string]string) (name string, isAlike bool) {
	if d.Position != "" {
		return d.Position, false
	}
	parts := []string{d.MessageID, d.Topic, d.At.UTC().Format(time.RFC3339), string(d.Body)}
	for _, headers := range []map[string]string{asked, own} {
		for _, header := range slices.Sorted(maps.Keys(headers)) {
			parts = append(parts, header, headers[header])
		}
	}
	return digest(parts...), true
}

// digest tells texts from others.
func digest(texts ...string) string {
	hash := sha256.New()
	for _, text := range texts {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(text), text) // It never fails.
	}
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

func checkIdentity(ref delay.Ref) *operate.Fault {
	if err := message.CheckIdentity(ref.ID, ref.Key); err != nil {
		return asHeader(operate.Classify(err))
	}
	return nil
}

// due reads when the message is due. A message for RabbitMQ's plugin that says nothing is due now, as it
// is for the plugin.
func due(asked map[string]string, sink message.SinkType) (when operate.When, refused *operate.Fault) {
	given := 0
	for _, header := range []string{HeaderIn, HeaderAt, HeaderXDelay} {
		if _, has := asked[header]; has {
			given++
		}
	}
	switch {
	case given > 1 || given == 0 && (sink != message.RabbitMQ || len(asked) > 0):
		return when, &operate.Fault{Code: operate.CodeInvalid, Field: HeaderIn, Detail: "give one of " + HeaderIn + " and " + HeaderAt}
	case given == 0:
		return operate.When{In: "0s"}, nil
	}
	if text, has := asked[HeaderXDelay]; has {
		in, ok := milliseconds(text)
		if !ok {
			return when, invalid(HeaderXDelay, text, "must be milliseconds")
		}
		return operate.When{In: in}, nil
	}
	when = operate.When{In: asked[HeaderIn], At: asked[HeaderAt]}
	if in, ok := milliseconds(when.In); ok && !strings.HasPrefix(when.In, "-") {
		when.In = in
	}
	if _, err := when.Parse(); err != nil {
		return when, asHeader(operate.Classify(err))
	}
	return when, nil
}

// milliseconds reads a number of milliseconds; less than none is none.
func milliseconds(text string) (in string, ok bool) {
	n, err := strconv.ParseFloat(text, 64)
	const most = 1 << 53 // More is no delay that anybody means.
	if err != nil || math.IsNaN(n) || n > most || n < -most {
		return "", false
	}
	whole := int64(n)
	if float64(whole) < n {
		whole++
	}
	return strconv.FormatInt(max(whole, 0), 10) + "ms", true
}

// schedule is the message to be scheduled.
func schedule(d *source.Delivery, o *Operation, asked, own map[string]string, rules *Rules) (s operate.Schedule, refused *operate.Fault) {
	topic := cmp.Or(asked[HeaderTopic], rules.Topic)
	if topic == "" && rules.Sink == message.RabbitMQ {
		topic = d.Topic
	}
	s = operate.Schedule{ID: o.ID, Key: o.Key, Topic: topic, Headers: own, Body: string(d.Body), When: o.When}
	s.Conflict = cmp.Or(asked[HeaderConflict], "keep")
	if tags := asked[HeaderTags]; tags != "" {
		for tag := range strings.SplitSeq(tags, ",") {
			s.Tags = append(s.Tags, strings.TrimSpace(tag))
		}
	}
	if text := asked[HeaderLate]; text != "" {
		then, after, _ := strings.Cut(text, " ")
		s.Late = &operate.Late{Then: then, After: strings.TrimSpace(after)}
	}
	switch {
	case topic == "":
		refused = &operate.Fault{Code: operate.CodeInvalid, Field: HeaderTopic, Detail: HeaderTopic + " is missing, and inlet " + rules.Name + " has no topic"}
	case rules.Own != "" && topic == rules.Own:
		refused = invalid(HeaderTopic, topic, "is what the inlet consumes, so the message would come back")
	case operate.Conflicts[s.Conflict] == delay.AsClient:
		refused = invalid(HeaderConflict, s.Conflict, "must be keep, reject or replace")
	}
	return s, refused
}

// invalid refuses a header's value.
func invalid(header, value, limit string) *operate.Fault {
	err := message.InvalidError{Field: header, Value: value, Limit: limit}
	return operate.Invalid(header, err.Error())
}

// asHeader names the header that a field of the API is here.
func asHeader(f *operate.Fault) *operate.Fault {
	field, _, _ := strings.Cut(f.Field, ".")
	switch field {
	case "id", "key", "topic", "in", "at", "conflict", "late", "tags":
		named := *f
		named.Field = "delay-" + field
		if said, ok := strings.CutPrefix(f.Detail, field+" "); ok {
			named.Detail = named.Field + " " + said
		}
		return &named
	case "tag":
		named := *f
		named.Field = HeaderTags
		return &named
	}
	return f
}
