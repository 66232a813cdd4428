package inlet

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/operate"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// record is a Kafka record, whose headers are given as a name and a value each.
func record(headers ...string) *source.Delivery {
	d := &source.Delivery{Origin: source.Origin{Position: "commands/0/5@1", Key: "k"}, Body: []byte("b")}
	for i := 0; i < len(headers); i += 2 {
		d.Add(headers[i], headers[i+1])
	}
	return d
}

// published is a message of RabbitMQ, with a message-id.
func published(headers ...string) *source.Delivery {
	d := record(headers...)
	d.Position, d.Key, d.MessageID, d.Topic = "", "", "m1", "order.timeout"
	return d
}

// TestParse: what is asked.
func TestParse(t *testing.T) {
	t.Parallel()
	ref := func(id, key string) delay.Ref { return delay.Ref{ID: id, Key: key} }
	schedule := func(ref delay.Ref, topic, in, at string) Operation {
		when := operate.When{In: in, At: at}
		return Operation{Op: OpSchedule, Ref: ref, When: when, Schedule: operate.Schedule{
			ID: ref.ID, Key: ref.Key, Topic: topic, Headers: map[string]string{}, Body: "b", When: when, Conflict: "keep",
		}}
	}
	kafka, rabbit := message.Kafka, message.RabbitMQ
	for name, c := range map[string]struct {
		of   message.SinkType
		from *source.Delivery
		want Operation
	}{
		"a position is the id, its key the key": {kafka, record("delay-in", "30m"), schedule(ref("commands/0/5@1", "k"), "t", "30m", "")},
		"days":                                  {kafka, record("delay-in", "2d"), schedule(ref("commands/0/5@1", "k"), "t", "2d", "")},
		"milliseconds":                          {kafka, record("delay-in", "1500"), schedule(ref("commands/0/5@1", "k"), "t", "1500ms", "")},
		"an instant":                            {kafka, record("delay-at", "2027-01-31T09:00:00Z"), schedule(ref("commands/0/5@1", "k"), "t", "", "2027-01-31T09:00:00Z")},
		"names":                                 {kafka, record("delay-in", "1s", "delay-id", "a", "delay-key", "", "delay-topic", "u"), schedule(ref("a", ""), "u", "1s", "")},
		"any case":                              {kafka, record("Delay-In", "1s", "DELAY-ID", "a"), schedule(ref("a", "k"), "t", "1s", "")},
		"what a consumer has got":               {kafka, record("delay-in", "1s", "delay-id", "a", "delay-uid", "u", "delay-attempt", "3", "delay-queue", "q"), schedule(ref("a", "k"), "t", "1s", "")},
		"cancel":                                {kafka, record("delay-op", "cancel", "delay-id", "a"), Operation{Op: OpCancel, Ref: ref("a", "k")}},
		"reschedule":                            {kafka, record("delay-op", "reschedule", "delay-id", "a", "delay-in", "5"), Operation{Op: OpReschedule, Ref: ref("a", "k"), When: operate.When{In: "5ms"}}},
		"the plugin's":                          {rabbit, published("x-delay", "5000"), schedule(ref("m1", ""), "t", "5000ms", "")},
		"the plugin's, negative":                {rabbit, published("x-delay", "-5"), schedule(ref("m1", ""), "t", "0ms", "")},
		"the plugin's, a fraction":              {rabbit, published("x-delay", "1.5"), schedule(ref("m1", ""), "t", "2ms", "")},
		"the plugin's, without one":             {rabbit, published(), schedule(ref("m1", ""), "t", "0s", "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, refused := Parse(c.from, &Rules{Name: "in", Sink: c.of, Topic: "t"})
			require.Nil(t, refused)
			assert.Equal(t, c.from.Position == "", got.IsAlike)
			got.Name, got.IsAlike = "", false
			assert.Equal(t, c.want, got)
		})
	}
	got, refused := Parse(record("delay-in", "1s", "delay-tags", "red, blue", "delay-late", "drop 1h", "delay-conflict", "replace", "trace", "x"), &Rules{Topic: "t"})
	require.Nil(t, refused)
	assert.Equal(t, []string{"red", "blue"}, got.Schedule.Tags)
	assert.Equal(t, &operate.Late{Then: "drop", After: "1h"}, got.Schedule.Late)
	assert.Equal(t, "replace", got.Schedule.Conflict)
	assert.Equal(t, map[string]string{"trace": "x"}, got.Schedule.Headers)
	got, refused = Parse(published("x-delay", "1"), &Rules{Sink: rabbit})
	require.Nil(t, refused)
	assert.Equal(t, "order.timeout", got.Schedule.Topic, "the routing key as published")
}

// TestParseRefuses: each refusal names the header.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	nameless := published("x-delay", "1")
	nameless.MessageID = ""
	twice := record("delay-in", "1s", "a", "1")
	twice.Add("a", "2")
	for name, c := range map[string]struct {
		of    message.SinkType
		from  *source.Delivery
		field string
	}{
		"operation":             {message.Kafka, record("delay-op", "explode", "delay-in", "1s"), HeaderOp},
		"no due time":           {message.Kafka, record("delay-id", "a"), HeaderIn},
		"no due time, asked":    {message.RabbitMQ, published("delay-id", "a"), HeaderIn},
		"two due times":         {message.Kafka, record("delay-in", "1s", "delay-at", "2027-01-31T09:00:00Z"), HeaderIn},
		"two, one the plugin's": {message.RabbitMQ, published("delay-in", "1s", "x-delay", "1"), HeaderIn},
		"no duration":           {message.Kafka, record("delay-in", "soon"), HeaderIn},
		"negative":              {message.Kafka, record("delay-in", "-5s"), HeaderIn},
		"negative number":       {message.Kafka, record("delay-in", "-5"), HeaderIn},
		"no instant":            {message.Kafka, record("delay-at", "tomorrow"), HeaderAt},
		"the plugin's text":     {message.RabbitMQ, published("x-delay", "soon"), HeaderXDelay},
		"id":                    {message.Kafka, record("delay-in", "1s", "delay-id", strings.Repeat("x", 256)), HeaderID},
		"key":                   {message.Kafka, record("delay-in", "1s", "delay-key", "a\x00"), HeaderKey},
		"no id":                 {message.RabbitMQ, nameless, HeaderID},
		"conflict":              {message.Kafka, record("delay-in", "1s", "delay-conflict", "maybe"), HeaderConflict},
		"its own topic":         {message.Kafka, record("delay-in", "1s", "delay-topic", "commands"), HeaderTopic},
		"a misspelt header":     {message.Kafka, record("delay-inn", "1s"), "delay-inn"},
		"a header twice":        {message.Kafka, twice, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, refused := Parse(c.from, &Rules{Sink: c.of, Topic: "t", Own: "commands"})
			require.NotNil(t, refused)
			assert.Equal(t, operate.CodeInvalid, refused.Code)
			assert.Equal(t, c.field, refused.Field)
			assert.Contains(t, refused.Detail, c.field)
		})
	}
	_, refused := Parse(record("delay-in", "1s"), &Rules{})
	require.NotNil(t, refused, "no topic")
	assert.Equal(t, HeaderTopic, refused.Field)
}

// TestNames: a broker without positions delivers a message again as it was; anything else is another one.
func TestNames(t *testing.T) {
	t.Parallel()
	name := func(change func(*source.Delivery)) string {
		d := published("x-delay", "1", "a", "b")
		change(d)
		o, _ := Parse(d, &Rules{Sink: message.RabbitMQ, Topic: "t"})
		return o.Name
	}
	first := name(func(*source.Delivery) {})
	assert.Equal(t, first, name(func(d *source.Delivery) { d.Redelivered = true }))
	for _, change := range []func(*source.Delivery){
		func(d *source.Delivery) { d.MessageID = "m2" },
		func(d *source.Delivery) { d.Body = []byte("c") },
		func(d *source.Delivery) { d.At = time.Unix(1, 0) },
		func(d *source.Delivery) { d.Add("delay-op", "cancel") },
		func(d *source.Delivery) { d.Headers["a"] = "c" },
	} {
		assert.NotEqual(t, first, name(change))
	}
}

// TestLevels: operations of one identity are in different lists, in their order.
func TestLevels(t *testing.T) {
	t.Parallel()
	var items []*item
	for _, id := range []string{"a", "b", "a", "c", "a", "b"} {
		items = append(items, &item{Operation: Operation{Ref: delay.Ref{ID: id}}})
	}
	items[3].result = &Reply{} // It is done already.
	assert.Equal(t, [][]int{{0, 1}, {2, 5}, {4}}, levels(items))
	assert.Empty(t, levels(nil))
}

// FuzzParse: whatever a message says, it is refused with a field, or asks something of an identity that Redis can keep.
func FuzzParse(f *testing.F) {
	f.Add("delay-in", "30m", "delay-id", "a", "k", "m", "t/0/1@2", []byte("x"), false)
	f.Add("X-Delay", "-5.5", "a", "b", "", "m", "", []byte(nil), true)
	f.Add("delay-op", "cancel", "DELAY-KEY", "\x00", "\xff", "", "", []byte("x"), true)
	f.Add("delay-late", "drop", "delay-tags", ",,", "", strings.Repeat("x", 300), strings.Repeat("p", 300), []byte("x"), false)
	f.Fuzz(func(t *testing.T, name, value, name2, value2, key, messageID, position string, body []byte, isRabbit bool) {
		sink := map[bool]message.SinkType{true: message.RabbitMQ, false: message.Kafka}[isRabbit]
		d := source.Delivery{Origin: source.Origin{Key: key, MessageID: messageID, Position: position, Topic: "here"}, Body: body}
		d.Add(name, value)
		d.Add(name2, value2)
		o, refused := Parse(&d, &Rules{Name: "in", Sink: sink, Topic: "t", Own: "own"})
		if refused != nil {
			require.Equal(t, operate.CodeInvalid, refused.Code)
			require.NotEmpty(t, refused.Field)
			require.NotEmpty(t, refused.Detail)
			return
		}
		require.NoError(t, message.CheckIdentity(o.ID, o.Key))
		require.NotEmpty(t, o.Name)
		if o.Op != OpCancel {
			_, err := o.When.Parse()
			require.NoError(t, err)
		}
		if o.Op == OpSchedule {
			require.Equal(t, string(body), o.Schedule.Body)
			require.NotEqual(t, "own", o.Schedule.Topic)
		}
	})
}
