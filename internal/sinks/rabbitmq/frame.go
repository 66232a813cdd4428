package rabbitmq

import "encoding/binary"

// The kinds of frames of AMQP 0-9-1 that a channel has.
const (
	frameMethod = 1
	frameHeader = 2
	frameBody   = 3
	frameEnd    = 0xCE
	// frameHead is the length of what comes before a frame's payload: kind, channel, length.
	frameHead = 7
	// frameExtra is what a frame has beside its payload.
	frameExtra = frameHead + 1
)

// method names a method: its class in the upper half, its number in the lower one.
type method uint32

// The methods of a channel that publishes with confirmations.
const (
	methodOpen      method = 20<<16 | 10
	methodOpenOK    method = 20<<16 | 11
	methodClose     method = 20<<16 | 40
	methodCloseOK   method = 20<<16 | 41
	methodPublish   method = 60<<16 | 40
	methodReturn    method = 60<<16 | 50
	methodAck       method = 60<<16 | 80
	methodNack      method = 60<<16 | 120
	methodConfirm   method = 85<<16 | 10
	methodConfirmOK method = 85<<16 | 11
)

// beginFrame appends a frame's head; endFrame completes the frame that began at
// that place.
func beginFrame(b []byte, kind byte, channel uint16) []byte {
	b = append(b, kind)
	b = binary.BigEndian.AppendUint16(b, channel)
	return append(b, 0, 0, 0, 0)
}

func endFrame(b []byte, at int) []byte {
	binary.BigEndian.PutUint32(b[at+3:], uint32(len(b)-at-frameHead))
	return append(b, frameEnd)
}

func appendMethod(b []byte, channel uint16, m method, arguments ...byte) []byte {
	at := len(b)
	b = beginFrame(b, frameMethod, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(m))
	return endFrame(append(b, arguments...), at)
}

// appendPublish appends the frames of a message that is mandatory. A body is
// split where it is longer than a frame; a frameSize of 0 is no limit.
func appendPublish(b []byte, channel uint16, exchange, topic string, properties, body []byte, frameSize int) []byte {
	const isMandatory = 1
	at := len(b)
	b = beginFrame(b, frameMethod, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(methodPublish))
	b = append(b, 0, 0) // reserved
	b = appendShort(b, exchange)
	b = appendShort(b, topic)
	b = endFrame(append(b, isMandatory), at)

	at = len(b)
	b = beginFrame(b, frameHeader, channel)
	b = append(b, byte(methodPublish>>24), byte(methodPublish>>16), 0, 0) // class, weight
	b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	b = endFrame(append(b, properties...), at)

	most := len(body)
	if frameSize > 0 {
		most = frameSize - frameExtra
	}
	for len(body) > 0 {
		piece := body[:min(len(body), most)]
		at = len(b)
		b = beginFrame(b, frameBody, channel)
		b = endFrame(append(b, piece...), at)
		body = body[len(piece):]
	}
	return b
}

// appendShort appends a string of at most maxShortString bytes.
func appendShort(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

func appendLong(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

// reader reads the fields of a payload. Past the end all are zero, and isShort is set.
type reader struct {
	rest    []byte
	isShort bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.rest, r.isShort = nil, true
		return make([]byte, min(max(n, 0), 8))
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) octet() byte    { return r.take(1)[0] }
func (r *reader) uint16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) uint32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) uint64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }
func (r *reader) short() string  { return string(r.take(int(r.octet()))) }
func (r *reader) long() []byte   { return r.take(int(r.uint32())) }
