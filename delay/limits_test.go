package delay_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

const (
	kafka    = message.Kafka
	nats     = message.NATS
	rabbitmq = message.RabbitMQ
)

// limitCase is an input and the field that its error must name; "" where it is
// accepted.
type limitCase struct {
	name  string
	sink  message.SinkType // "" means all
	m     delay.Message
	when  delay.When
	field string
}

func id(v string) delay.Message    { return delay.Message{ID: v, Topic: "t"} }
func key(v string) delay.Message   { return delay.Message{ID: "x", Key: v, Topic: "t"} }
func topic(v string) delay.Message { return delay.Message{ID: "x", Topic: v} }
func header(name, value string) delay.Message {
	return delay.Message{ID: "x", Topic: "t", Headers: map[string]string{name: value}}
}

func late(after time.Duration, then delay.LateAction) delay.Message {
	return delay.Message{ID: "x", Topic: "t", Late: delay.Late{After: after, Then: then}}
}

func tags(list ...string) delay.Message { return delay.Message{ID: "x", Topic: "t", Tags: list} }

func headers(n int) delay.Message {
	m := delay.Message{ID: "x", Topic: "t", Headers: map[string]string{}}
	for i := range n {
		m.Headers[fmt.Sprint("h", i)] = "v"
	}
	return m
}

// sized is a message of that many bytes in all.
func sized(n int) delay.Message {
	m := delay.Message{ID: "x", Key: "key", Topic: "topic", Headers: map[string]string{"name": "value"}}
	m.Body = make([]byte, n-len("x")-len("key")-len("topic")-len("name")-len("value"))
	return m
}

// printable are names that HTTP's rule, which NATS applies, does not allow.
const printable = `(),/;<=>?@[]{}"\`

const tenYears = 10 * 366 * 24 * time.Hour

var limitCases = []limitCase{
	{name: "8 tags, one twice", m: tags("1", "2", "3", "4", "5", "6", "7", "8", "1")},
	{name: "9 tags", m: tags("1", "2", "3", "4", "5", "6", "7", "8", "9"), field: "tag"},
	{name: "tag of 64", m: tags(strings.Repeat("é", 32))},
	{name: "tag of 65", m: tags(strings.Repeat("t", 65)), field: "tag"},
	{name: "empty tag", m: tags(""), field: "tag"},
	{name: "tag with signs", m: tags("spring-sale/2026:é*")},
	{name: "tag with comma", m: tags("a,b"), field: "tag"},
	{name: "tag with space", m: tags("a b"), field: "tag"},
	{name: "tag with no-break space", m: tags("a\u00a0b"), field: "tag"},
	{name: "tag with control", m: tags("a\x7f"), field: "tag"},
	{name: "tag of no UTF-8", m: tags("\xff"), field: "tag"},
	{name: "tags as a header", m: header("delay-tags", "a"), field: "header"},
	{name: "tags beside 64 headers", m: delay.Message{ID: "x", Topic: "t", Headers: headers(64).Headers, Tags: []string{"a"}}},
	{name: "late", m: late(time.Millisecond, delay.LateDrop)},
	{name: "late, published", m: late(0, delay.LatePublish)},
	{name: "late at once", m: late(0, delay.LateDead), field: "late"},
	{name: "late without an action", m: late(time.Hour, ""), field: "late"},
	{name: "late, another action", m: late(time.Hour, "burn"), field: "late"},
	{name: "a seal as a header", m: header("delay-sealed", "k1"), field: "header"},
	{name: "late as a header", m: header("delay-late", "drop 1h"), field: "header"},
	{name: "late beside 64 headers", m: delay.Message{ID: "x", Topic: "t", Headers: headers(64).Headers, Late: delay.Late{After: 1, Then: delay.LatePublish}}},
	{name: "id of 1", m: id("i")},
	{name: "id of 255", m: id(strings.Repeat("i", 255))},
	{name: "id of 256", m: id(strings.Repeat("i", 256)), field: "id"},
	{name: "id of 255 bytes of UTF-8", m: id(strings.Repeat("é", 127) + "i")},
	{name: "id of 256 bytes of UTF-8", m: id(strings.Repeat("é", 128)), field: "id"},
	{name: "id with slash, colon, space within", m: id("order 42/time:out*[]")},
	{name: "id with NUL", m: id("a\x00b"), field: "id"},
	{name: "id with line end", m: id("a\nb"), field: "id"},
	{name: "id with tab", m: id("a\tb"), field: "id"},
	{name: "id with DEL", m: id("a\x7fb"), field: "id"},
	{name: "id with C1 control", m: id("a\u0085b"), field: "id"},
	{name: "id not UTF-8", m: id("a\xffb"), field: "id"},
	{name: "id with outer space", m: id(" a"), field: "id"},
	{name: "id of a space", m: id(" "), field: "id"},

	{name: "no key", m: key("")},
	{name: "key of 255", m: key(strings.Repeat("k", 255))},
	{name: "key of 256", m: key(strings.Repeat("k", 256)), field: "key"},
	{name: "key with NUL", m: key("a\x00b"), field: "key"},
	{name: "key not UTF-8", m: key("\xff"), field: "key"},
	{name: "key with outer space", m: key("a "), field: "key"},

	{name: "no topic", m: topic(""), field: "topic"},
	{name: "topic with NUL", m: topic("a\x00"), field: "topic"},
	{name: "topic not UTF-8", m: topic("a\xff"), field: "topic"},
	{name: "topic of 249", m: topic(strings.Repeat("t", 249))},
	{name: "kafka topic of 250", sink: kafka, m: topic(strings.Repeat("t", 250)), field: "topic"},
	{name: "kafka topic of all bytes", sink: kafka, m: topic("aZ09._-")},
	{name: "kafka topic with slash", sink: kafka, m: topic("a/b"), field: "topic"},
	{name: "kafka topic with space", sink: kafka, m: topic("a b"), field: "topic"},
	{name: "kafka topic not ASCII", sink: kafka, m: topic("é"), field: "topic"},
	{name: "kafka topic .", sink: kafka, m: topic("."), field: "topic"},
	{name: "kafka topic ..", sink: kafka, m: topic(".."), field: "topic"},
	{name: "kafka topic ...", sink: kafka, m: topic("...")},
	{name: "nats subject", sink: nats, m: topic("orders.eu.$x._INBOX")},
	{name: "nats subject with space", sink: nats, m: topic("a b"), field: "topic"},
	{name: "nats subject with tab", sink: nats, m: topic("a\tb"), field: "topic"},
	{name: "nats subject with star", sink: nats, m: topic("a.*"), field: "topic"},
	{name: "nats subject with >", sink: nats, m: topic("a.>"), field: "topic"},
	{name: "nats subject with empty token", sink: nats, m: topic("a..b"), field: "topic"},
	{name: "nats subject with outer dot", sink: nats, m: topic("a."), field: "topic"},
	{name: "nats subject of the server", sink: nats, m: topic("$JS.API"), field: "topic"},
	{name: "nats inbox", sink: nats, m: topic("_INBOX.x"), field: "topic"},
	{name: "nats not quite an inbox", sink: nats, m: topic("_INBOXES.x")},
	{name: "routing key of 255", sink: rabbitmq, m: topic(strings.Repeat("t", 255))},
	{name: "routing key of 256", sink: rabbitmq, m: topic(strings.Repeat("t", 256)), field: "topic"},
	{name: "routing key with all the rest", sink: rabbitmq, m: topic("a b.*.#>/é")},

	{name: "64 headers", m: headers(64)},
	{name: "65 headers", m: headers(65), field: "header"},
	{name: "header", m: header("traceparent", "00-aa-bb-01")},
	{name: "header without value", m: header("a", "")},
	{name: "header with inner tab", m: header("a", "b\tc")},
	{name: "header not ASCII", m: header("a", "ключ")},
	{name: "header name of 255", m: header(strings.Repeat("n", 255), "v")},
	{name: "header name of 256", m: header(strings.Repeat("n", 256), "v"), field: "header"},
	{name: "header name empty", m: header("", "v"), field: "header"},
	{name: "header name with colon", m: header("a:b", "v"), field: "header"},
	{name: "header name with space", m: header("a b", "v"), field: "header"},
	{name: "header name with control", m: header("a\x01", "v"), field: "header"},
	{name: "header name not ASCII", m: header("é", "v"), field: "header"},
	{name: "header name of a token", m: header("!#$%&'*+-.^_`|~", "v")},
	{name: "header name printable on kafka", sink: kafka, m: header(printable, "v")},
	{name: "header name printable on rabbitmq", sink: rabbitmq, m: header(printable, "v")},
	{name: "header name printable on nats", sink: nats, m: header(printable, "v"), field: "header"},
	{name: "header value with line end", m: header("a", "b\r\nc"), field: "header"},
	{name: "header value with NUL", m: header("a", "b\x00"), field: "header"},
	{name: "header value not UTF-8", m: header("a", "\xff"), field: "header"},
	{name: "header value with outer space", m: header("a", " b"), field: "header"},
	{name: "header value with outer tab", m: header("a", "b\t"), field: "header"},
	{name: "header delay-x", m: header("delay-x", "v"), field: "header"},
	{name: "header DELAY-ID", m: header("DELAY-ID", "v"), field: "header"},
	{name: "header delayed", m: header("delayed", "v")},
	{name: "header Nats-Msg-Id", m: header("Nats-Msg-Id", "v"), field: "header"},
	{name: "header CC", m: header("CC", "v"), field: "header"},
	{name: "header BCC", m: header("BCC", "v"), field: "header"},
	{name: "header cc", m: header("cc", "v")},

	{name: "body empty", m: topic("t")},
	{name: "960 KiB", m: sized(960 << 10)},
	{name: "960 KiB and a byte", m: sized(960<<10 + 1), field: "body"},

	{name: "no due time", m: topic("t"), field: "due"},
	{name: "no due time, spread", m: topic("t"), when: delay.When{}.Spread(time.Hour), field: "due"},
	{name: "at once", m: topic("t"), when: delay.After(0)},
	{name: "after less than nothing", m: topic("t"), when: delay.After(-time.Hour)},
	{name: "after 10 years", m: topic("t"), when: delay.After(tenYears)},
	{name: "after more", m: topic("t"), when: delay.After(tenYears + 1), field: "due"},
	{name: "at 1970", m: topic("t"), when: delay.At(time.Unix(0, 0))},
	{name: "at once upon a time", m: topic("t"), when: delay.At(time.Unix(1e9, 0))},
	{name: "before 1970", m: topic("t"), when: delay.At(time.Unix(0, -1)), field: "due"},
	{name: "at no time", m: topic("t"), when: delay.At(time.Time{}), field: "due"},
	{name: "at almost 10 years", m: topic("t"), when: delay.At(time.Now().Add(tenYears - time.Hour))},
	{name: "at more", m: topic("t"), when: delay.At(time.Now().Add(tenYears + time.Hour)), field: "due"},
	{name: "at the end of time", m: topic("t"), when: delay.At(time.Unix(1<<60, 0)), field: "due"},
}

// TestLimits schedules on both sides of every limit.
func TestLimits(t *testing.T) {
	t.Parallel()
	for _, sink := range []message.SinkType{kafka, nats, rabbitmq} {
		t.Run(string(sink), func(t *testing.T) {
			t.Parallel()
			p := newFakePlace(t, sink)
			client := p.client(t, delay.WithConflict(delay.Replace))
			for _, c := range limitCases {
				if c.sink != "" && c.sink != sink {
					continue
				}
				if c.when == (delay.When{}) && c.name != "no due time" {
					c.when = delay.After(0)
				}
				res, err := client.Schedule(t.Context(), c.m, c.when)
				require.Equal(t, delay.Ref{ID: c.m.ID, Key: c.m.Key}, res.Ref, c.name)
				if c.field == "" {
					require.NoError(t, err, c.name)
					continue
				}
				requireInvalid(t, err, c.field, c.name)
				require.Equal(t, err, res.Err, c.name)
				require.Empty(t, res.Status, c.name)
			}
		})
	}
}

func requireInvalid(t *testing.T, err error, field, name string) {
	t.Helper()
	require.ErrorIs(t, err, delay.ErrInvalid, name)
	var invalid *message.InvalidError
	require.ErrorAs(t, err, &invalid, name)
	require.Equal(t, field, invalid.Field, name)
	require.ErrorContains(t, err, field+" \"", name)
	require.NotEmpty(t, invalid.Limit, name)
	require.Less(t, len(err.Error()), 512, "%s: the value is shortened", name)
}

// TestLimitsOfRefs checks the identity in the other calls.
func TestLimitsOfRefs(t *testing.T) {
	t.Parallel()
	client := newFakePlace(t, kafka).client(t)
	for field, ref := range map[string]delay.Ref{"id": {}, "key": {ID: "x", Key: "\x00"}} {
		_, err := client.Get(t.Context(), ref)
		requireInvalid(t, err, field, "get")
		requireInvalid(t, client.Cancel(t.Context(), ref), field, "cancel")
		requireInvalid(t, client.Reschedule(t.Context(), ref, delay.After(0)), field, "reschedule")
	}
	requireInvalid(t, client.Reschedule(t.Context(), delay.Ref{ID: "x"}, delay.After(tenYears+1)), "due", "reschedule")
	err := client.Reschedule(t.Context(), delay.Ref{ID: "x"}, delay.When{})
	requireInvalid(t, err, "due", "reschedule at no time")
	require.ErrorContains(t, err, "use After or At")
}

// TestMaxSize lowers the size limit, and never raises it.
func TestMaxSize(t *testing.T) {
	t.Parallel()
	p := newFakePlace(t, kafka)
	small := p.client(t, delay.WithMaxSize(1000))
	_, err := small.Schedule(t.Context(), sized(1000), delay.After(time.Hour))
	require.NoError(t, err)
	_, err = small.Schedule(t.Context(), sized(1001), delay.After(time.Hour))
	requireInvalid(t, err, "body", "lowered")
	require.ErrorContains(t, err, "1000")
	large := p.client(t, delay.WithMaxSize(10<<20))
	_, err = large.Schedule(t.Context(), sized(960<<10+1), delay.After(time.Hour))
	requireInvalid(t, err, "body", "the queue's own limit")
}

// TestNewClient checks options, and does no I/O.
func TestNewClient(t *testing.T) {
	t.Parallel()
	rdb := storetest.Connect(t, "redis://127.0.0.1:1")
	for _, queue := range []string{"o", "orders", "0-a_b", strings.Repeat("q", 63)} {
		_, err := delay.NewClient(rdb, queue)
		require.NoError(t, err)
	}
	for _, queue := range []string{"", "Orders", "-a", "_a", "a b", "a:b", "{a}", strings.Repeat("q", 64)} {
		_, err := delay.NewClient(rdb, queue)
		requireInvalid(t, err, "queue", queue)
	}
	_, err := delay.NewClient(nil, "orders")
	requireInvalid(t, err, "rdb", "nil")
	for _, prefix := range []string{"a{b}", "a b", "-a", "a*", "\xff", strings.Repeat("p", 64)} { // A bridge may have none of them.
		_, err := delay.NewClient(rdb, "orders", delay.WithPrefix(prefix))
		requireInvalid(t, err, "prefix", prefix)
	}
	bad := map[string]delay.Option{
		"prefix":     delay.WithPrefix(""),
		"conflict":   delay.WithConflict(delay.Replace + 1),
		"durability": delay.WithDurability(delay.Replicas(-1)),
		"timeout":    delay.WithTimeout(0),
		"max size":   delay.WithMaxSize(-1),
	}
	for _, field := range slices.Sorted(maps.Keys(bad)) {
		_, err := delay.NewClient(rdb, "orders", bad[field])
		requireInvalid(t, err, field, field)
	}
	_, err = delay.NewClient(rdb, "orders", delay.WithTimeout(31*time.Second))
	requireInvalid(t, err, "timeout", "more than a call may take")
	require.Zero(t, rdb.PoolStats().Misses, "no connection was asked for")
}
