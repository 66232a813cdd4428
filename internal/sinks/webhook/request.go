package webhook

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

const (
	// HeaderKey has the message's Key, if it has one.
	HeaderKey = "delay-key"
	// The headers of Standard Webhooks.
	headerID        = "webhook-id"
	headerTimestamp = "webhook-timestamp"
	headerSignature = "webhook-signature"

	octets = "application/octet-stream"
)

// request makes the request of a message, signed for this attempt. Nothing refers to the
// message's body afterwards. It tells progress whenever the connection has taken some of
// the body. The error is a [*message.InvalidError].
func (e *endpoint) request(ctx context.Context, m *message.Message, now time.Time, progress func()) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, header := range m.PublishedHeaders() {
		if err := message.CheckHeader(message.Webhook, header.Name, header.Value); err != nil {
			return nil, err
		}
		request.Header.Add(header.Name, header.Value)
	}
	if m.Key != "" {
		request.Header.Set(HeaderKey, m.Key)
	}
	if request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", octets)
	}
	if e.authorization != nil {
		request.Header.Set("Authorization", e.authorization.Get())
	}
	copied := e.sign(request.Header, m, now)
	// A request with a body that cannot be read again is one that net/http never sends again.
	request.Body = &body{bytes.NewReader(copied), progress}
	request.ContentLength = int64(len(m.Body))
	return request, nil
}

// sign adds the headers of Standard Webhooks, and returns a copy of the body. The id is the same in each attempt.
func (e *endpoint) sign(header http.Header, m *message.Message, now time.Time) (copied []byte) {
	// A dot would let one signature stand for two contents.
	id, timestamp := strings.ReplaceAll(m.UID(), ".", "_"), strconv.FormatInt(now.Unix(), 10)
	content := append([]byte(id+"."+timestamp+"."), m.Body...)
	copied = content[len(content)-len(m.Body):]
	var signatures []string
	for _, sign := range e.secrets.Get() {
		signatures = append(signatures, sign(content))
	}
	header.Set(headerID, id)
	header.Set(headerTimestamp, timestamp)
	header.Set(headerSignature, strings.Join(signatures, " "))
	return copied
}

// body tells of each part that is read of it, which is when the connection has taken the one before.
type body struct {
	content  *bytes.Reader
	progress func()
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	b.progress()
	return b.content.Read(p)
}

// Close implements [io.Closer].
func (*body) Close() error { return nil }

// hasControl reports whether a header cannot have the value.
func hasControl(value string) bool {
	return strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
