package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// A body is read before its call takes a place, and counted while it arrives: what it
// would become in memory is known before anything is decoded. These are the bounds.
const (
	// mostBody is how many bytes the body of a schedule has at most: room for a batch
	// of usual messages, or for the largest one in base64; smallBody those of all others.
	mostBody  = 24 << 20
	smallBody = 1 << 20
	// mostBatch is how many messages one call schedules at most.
	mostBatch = 1000
	// Names and values: a message has some 160 at most, with all its headers and tags.
	mostNames      = 1000
	mostBatchNames = 256 * mostBatch
	// bodyTimeout bounds how long a body may take to arrive.
	bodyTimeout = 10 * time.Second
	// Bytes in flight: the first smallBody of each body as they come; what a larger one
	// has beyond is set aside as a whole, so that no two wait for each other.
	mostBytes, shareOfBytes, reserveOfBytes = 24 << 20, 12 << 20, 2 << 20
	mostLarge, shareOfLarge                 = 2 * mostBody, mostBody
)

// bodyLimits are those of a call's body.
type bodyLimits struct {
	bytes int64
	names int
	// list names the list that has the messages of a batch, and items is how many they may be.
	list  string
	items int
}

var (
	smallLimits = bodyLimits{bytes: smallBody, names: mostNames}
	oneLimits   = bodyLimits{bytes: mostBody, names: mostNames}
	batchLimits = bodyLimits{bytes: mostBody, names: mostBatchNames, list: "messages", items: mostBatch}
)

// readBody reads the whole body of a call and replaces the body by it. Its bytes
// count as in flight until done is called.
func (rt *router) readBody(w http.ResponseWriter, r *http.Request, limits bodyLimits, p payer, operating bool) (done func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), rt.bodyTimeout)
	defer cancel()
	control := http.NewResponseController(w)
	deadline, _ := ctx.Deadline()
	_ = control.SetReadDeadline(deadline) // Not every writer has one; a connection's does.
	b := &bodyReader{
		ctx: ctx, from: r.Body, limits: limits, length: r.ContentLength,
		small: rt.bytes.holding(p, operating), large: rt.large.holding(p, operating),
	}
	done = func() {
		b.small.release()
		b.large.release()
	}
	var content bytes.Buffer
	if _, err = content.ReadFrom(b); err != nil {
		done()
		_, _ = io.CopyN(io.Discard, r.Body, mostBody) // Else some callers see a broken connection, and no answer.
		if err := b.problem(err); err.Status == http.StatusRequestTimeout {
			w.Header().Set("Connection", "close")
			return nil, err
		}
		return nil, b.problem(err)
	}
	_ = control.SetReadDeadline(time.Time{}) // It would end the call.
	r.Body = io.NopCloser(bytes.NewReader(content.Bytes()))
	return done, nil
}

// bodyReader reads a body as it arrives.
type bodyReader struct {
	ctx          context.Context //nolint:containedctx // It ends the reading, which has no other.
	from         io.Reader
	limits       bodyLimits
	length       int64 // as the caller has announced it; less than 0 if it has not
	small, large *holding

	read    int64
	isLarge bool
	names   counter
}

// Read implements io.Reader. Errors that are Problems say what is too much.
func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.read += int64(n)
	if refused := b.admit(p[:n]); refused != nil {
		return n, refused
	}
	return n, err //nolint:wrapcheck // io.EOF ends the reading.
}

// admit refuses what is too much.
func (b *bodyReader) admit(arrived []byte) error {
	if b.read > b.limits.bytes || b.length > b.limits.bytes {
		p := newProblem(http.StatusRequestEntityTooLarge, "invalid", fmt.Sprintf("the body has more than the %d bytes that are allowed", b.limits.bytes))
		return p
	}
	switch {
	case b.isLarge:
	case b.read <= smallBody:
		if !b.small.try(int64(len(arrived))) {
			return newProblem(http.StatusTooManyRequests, "rate_limited", "too many bytes of bodies at once")
		}
	default:
		rest := b.limits.bytes
		if b.length >= 0 {
			rest = b.length
		}
		if b.isLarge = b.large.wait(b.ctx, rest); !b.isLarge {
			return newProblem(http.StatusTooManyRequests, "rate_limited", "too many large bodies at once")
		}
	}
	b.names.count(arrived)
	switch {
	case b.limits.items > 0 && b.names.items > b.limits.items:
		return invalid(b.limits.list, fmt.Sprintf("%s has more than %d items", b.limits.list, b.limits.items))
	case b.names.all > b.limits.names:
		return invalid("", fmt.Sprintf("the body has more than %d names and values", b.limits.names))
	}
	return nil
}

// problem is the answer to a body that was not read to its end.
func (b *bodyReader) problem(err error) *Problem {
	if known, ok := errors.AsType[*Problem](err); ok {
		return known
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return newProblem(http.StatusRequestTimeout, "invalid", fmt.Sprintf("the body did not arrive within %s", bodyTimeout))
	}
	return invalid("", "the body has ended too early: "+err.Error())
}

// counter counts the names and values of a JSON text as it arrives, by the marks before
// them. It takes any bytes; the decoder decides whether they are JSON.
type counter struct {
	// all are the names and values; items those of the list in the outermost object.
	all, items int

	isText, isEscaped, isList bool
	depth                     int
}

// outermost is the depth of what is in the outermost object.
const outermost = 2

func (c *counter) count(text []byte) {
	for _, b := range text {
		switch {
		case c.isEscaped:
			c.isEscaped = false
		case b == '"':
			c.isText = !c.isText
		case c.isText:
			c.isEscaped = b == '\\'
		default:
			c.mark(b)
		}
	}
}

func (c *counter) mark(b byte) {
	switch b {
	case '{', '[':
		c.all++
		if c.depth++; c.depth == outermost {
			c.isList, c.items = b == '[', 1
		}
	case '}', ']':
		c.depth--
	case ':':
		c.all++
	case ',':
		c.all++
		if c.depth == outermost && c.isList {
			c.items++
		}
	}
}
