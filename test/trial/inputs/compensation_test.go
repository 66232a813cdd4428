package inputs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/test/trial"
)

// deadLetters are what the dead topic of the compensations has: reasons by body.
type deadLetters struct {
	stream  jetstream.Stream
	last    uint64 // what was read
	reasons map[string]string
}

// read reads what is new.
func (d *deadLetters) read(ctx context.Context) error {
	info, err := d.stream.Info(ctx)
	if err != nil {
		return err
	}
	for ; d.last < info.State.LastSeq; d.last++ {
		m, err := d.stream.GetMsg(ctx, d.last+1)
		if err != nil {
			return err
		}
		d.reasons[string(m.Data)] = m.Header.Get("compensation-reason")
	}
	return nil
}

// compensationEntrance is the topic of compensation messages. The bridge must take each
// bad one to the dead topic, as it came, with the reason.
type compensationEntrance struct {
	aim
	broker trial.Broker
	nc     *natsgo.Conn
}

func (e compensationEntrance) name() string { return "compensation" }

func (e compensationEntrance) inputs(ctx context.Context) (list []input, err error) {
	publish, end, err := e.broker.Publisher(time.Minute)
	if err != nil {
		return nil, err
	}
	defer end()
	topic := "delay.compensation." + e.queue
	dead, err := e.deadTopic(ctx, strings.ReplaceAll(topic, ".", "-")+"-dead")
	if err != nil {
		return nil, err
	}
	var p patience
	seen := map[string]bool{}
	for _, bad := range e.badMessages() {
		// The broker drops what it has had already, and a body that is empty is none.
		if seen[bad.text] || bad.text == "" {
			continue
		}
		seen[bad.text] = true
		if err := publish(ctx, topic, nil, []byte(bad.text)); err != nil {
			if strings.Contains(err.Error(), "maximum payload") {
				continue
			}
			return nil, fmt.Errorf("publish %s: %w", bad.what, err)
		}
		list = append(list, input{bad.what, bad.names, func(ctx context.Context) answer { return dead.buried(ctx, bad.text, &p) }})
	}
	return list, nil
}

// deadTopic waits for the stream that the bridge makes at its start.
func (e compensationEntrance) deadTopic(ctx context.Context, name string) (*deadLetters, error) {
	js, err := jetstream.New(e.nc)
	if err != nil {
		return nil, err
	}
	for {
		stream, err := js.Stream(ctx, name)
		if err == nil {
			return &deadLetters{stream: stream, reasons: map[string]string{}}, nil
		}
		if !wait.Sleep(ctx, 50*time.Millisecond) {
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

// buried waits until the dead topic has the message.
func (d *deadLetters) buried(ctx context.Context, body string, p *patience) answer {
	ctx, cancel := p.bound(ctx)
	defer cancel()
	for {
		if err := d.read(ctx); err != nil && ctx.Err() == nil {
			return answer{broken: true, text: err.Error()}
		}
		if reason, found := d.reasons[body]; found {
			return answer{refused: true, text: reason}
		}
		if !wait.Sleep(ctx, 20*time.Millisecond) {
			return answer{text: "not in the dead topic"}
		}
	}
}

// goodMembers are a good compensation message, in the place of the first message
// that is kept.
func (e compensationEntrance) goodMembers() []member {
	ms := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).UnixMilli(), 10) }
	return []member{
		{"v", "1"},
		{"kind", `"message"`},
		{"queue", quote(e.queue)},
		{"token", `"~~3456789abcdefg"`},
		{"id", quote(keptID)},
		{"key", `"bad"`},
		{"topic", quote(e.topic)},
		{"headers", `{"good": "a"}`},
		{"body", `"QUJD"`},
		{"due_ms", ms(time.Hour)},
		{"valid_until_ms", ms(24 * time.Hour)},
	}
}

func (e compensationEntrance) badMessages() (list []document) {
	good, rnd := e.goodMembers(), e.random("compensation")
	list = documents(good, rnd)
	add := func(name, value string, names ...string) {
		list = append(list, newDocument(fmt.Sprintf("%s %.80s", name, value), append(names, name), object(with(good, name, value))))
	}
	for _, bad := range spoil(e.message(), rnd) {
		m := good
		for _, changed := range messageMembers(&bad.message) {
			switch changed.name {
			case "tags", "late": // They are headers here.
			case "body_base64":
				m = with(m, "body", changed.value)
			case "key":
				m = with(m, "key", quote(bad.message.Key))
			default:
				m = with(m, changed.name, changed.value)
			}
		}
		if isHeader := len(bad.message.Tags) > 0 || bad.message.Late.Then != "" || bad.message.Late.After != 0; !isHeader && !reservedInRows(bad.message.Headers) {
			list = append(list, newDocument(bad.what, bad.names, object(m)))
		}
	}
	for _, value := range []string{"0", "2", "-1", "1e3", "1.5", "99999999999999999999"} {
		add("v", value, "version", ".v")
	}
	for _, value := range []string{"-1", "-9223372036854775808", "253402300800000", "9223372036854775807", "1e400", "1.5", "99999999999999999999"} {
		add("due_ms", value, "due")
		add("valid_until_ms", value, "valid until", "expired")
	}
	add("due_ms", strconv.FormatInt(time.Now().Add(mostDelay+48*time.Hour).UnixMilli(), 10), "due")
	for _, d := range []time.Duration{-time.Millisecond, -time.Hour, 49 * time.Hour} {
		add("valid_until_ms", strconv.FormatInt(time.Now().Add(d).UnixMilli(), 10), "valid until", "expired")
	}
	for _, token := range badTokens() {
		if isTraced := len(token) == 16 && strings.HasPrefix(token, "~~"); !isTraced { // That of a message without a row.
			add("token", quote(token))
		}
	}
	for _, kind := range []string{"", "rows", "Message", "row"} { // A row has no content.
		add("kind", quote(kind), "row")
	}
	for _, queue := range append(badQueues(), "nothing") {
		add("queue", quote(queue))
	}
	for _, value := range []string{`{"a": null}`, `{"a": 1}`, `{"a": "b", "a": "c"}`, `{"a": "\ud800"}`, `{"delay-late": "dead soon"}`, `{"delay-tags": "a b"}`, `{"delay-sealed": ""}`} {
		add("headers", value, "header", "late", "tag")
	}
	for _, value := range []string{`"#"`, `"QUJ"`, `"QUJD="`} {
		add("body", value)
	}
	list = append(list, document{"no v", []string{"version"}, object(without(good, "v"))})
	for _, name := range []string{"kind", "queue", "token", "id", "topic", "due_ms", "valid_until_ms"} {
		list = append(list, document{"no " + name, []string{name}, object(without(good, name))})
	}
	return list
}

// reservedInRows reports whether a header is one that rows and compensations carry
// other things in.
func reservedInRows(headers map[string]string) bool {
	for _, name := range []string{"delay-tags", "delay-late", "delay-sealed"} {
		if _, has := headers[name]; has {
			return true
		}
	}
	return false
}
