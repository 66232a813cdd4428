package nats

import (
	"bytes"
	"encoding/json"
	"errors"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

var (
	errInvalidAck   = errors.New("answer is no JetStream ack")
	errNoResponders = natsgo.ErrNoResponders
)

// parseAck says what the answer to a publish means.
func parseAck(m *natsgo.Msg) sinks.Outcome {
	if isPlainAck(m.Data) {
		return sinks.Acked()
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return classify(errNoResponders)
	}
	var ack struct {
		Stream    string              `json:"stream"`
		Duplicate bool                `json:"duplicate"`
		Error     *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &ack); {
	case err != nil:
		return classify(errInvalidAck)
	case ack.Error != nil:
		return classify(ack.Error)
	case ack.Stream == "":
		return classify(errInvalidAck)
	}
	return sinks.Outcome{Class: sinks.Acknowledged, Duplicate: ack.Duplicate}
}

// isPlainAck recognises {"stream":"S","seq":1}, with or without a space, byte
// by byte: nearly all answers look so, and decoding JSON costs more than
// everything else that is done about an ack. What differs is left to the decoder.
func isPlainAck(data []byte) bool {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok {
		return false
	}
	name := bytes.IndexByte(rest, '"')
	if name < 1 || bytes.ContainsFunc(rest[:name], func(r rune) bool { return r < ' ' || r == '\\' }) {
		return false
	}
	rest, ok = bytes.CutPrefix(rest[name+1:], []byte(`,`))
	rest = bytes.TrimPrefix(rest, []byte(` `))
	if !ok {
		return false
	}
	if rest, ok = bytes.CutPrefix(rest, []byte(`"seq":`)); !ok {
		return false
	}
	digits := 0
	for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
		digits++
	}
	return digits > 0 && rest[0] != '0' && string(rest[digits:]) == "}"
}
