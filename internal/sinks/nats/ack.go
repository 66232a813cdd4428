package nats

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

var (
	errInvalidAck   = errors.New("answer is not a JetStream ack")
	errUnstored     = errors.New("the ack names no sequence: an earlier copy is on its way to the replicas, and may yet fail")
	errNoResponders = natsgo.ErrNoResponders
)

// parseAck says what the answer to a publish means. last keeps the name of the stream
// that was seen last, since it is usually the same and need not be allocated again.
func parseAck(m *natsgo.Msg, last *string) sinks.Outcome {
	if stream, sequence, ok := cutPlainAck(m.Data, *last); ok {
		if *last != string(stream) {
			*last = string(stream)
		}
		return stored(*last, sequence)
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return classify(errNoResponders)
	}
	var ack struct {
		jetstream.PubAck
		Error *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &ack); {
	case err != nil:
		return classify(errInvalidAck)
	case ack.Error != nil:
		return classify(ack.Error)
	case ack.Stream == "":
		return classify(errInvalidAck)
	case ack.Sequence == 0: // {"seq":0,"duplicate":true} of clustered servers
		return classify(errUnstored)
	}
	outcome := stored(ack.Stream, ack.Sequence)
	outcome.Duplicate = ack.Duplicate
	return outcome
}

func stored(stream string, sequence uint64) sinks.Outcome {
	return sinks.Outcome{Class: sinks.Acknowledged, Place: sinks.Place{IsKnown: true, Stream: stream, Number: sequence}}
}

// cutPlainAck recognises {"stream":"S","seq":1}, with or without a space: nearly all
// answers look so, and decoding JSON costs more than everything else that is done
// about an ack. What differs is left to the decoder. last is a stream that was plain.
func cutPlainAck(data []byte, last string) (stream []byte, sequence uint64, ok bool) {
	rest, isAck := bytes.CutPrefix(data, []byte(`{"stream":"`))
	stream, rest, _ = bytes.Cut(rest, []byte(`",`))
	digits, isSequence := bytes.CutPrefix(bytes.TrimPrefix(rest, []byte(` `)), []byte(`"seq":`))
	digits, isAll := bytes.CutSuffix(digits, []byte(`}`))
	sequence, err := strconv.ParseUint(string(digits), 10, 64)
	isPlain := len(stream) > 0 && (string(stream) == last || !bytes.ContainsFunc(stream, func(r rune) bool { return r < ' ' || r == '\\' || r == '"' }))
	return stream, sequence, isAck && isSequence && isAll && isPlain && err == nil && digits[0] != '0'
}
