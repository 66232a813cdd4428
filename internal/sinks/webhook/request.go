package webhook

import (
	"bytes"
	"context"
	"io"
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
// message's body afterwards. The error is a [*message.InvalidError].
func (e *endpoint) request(ctx context.Context, m *message.Message, now time.Time) (*http.Request, error) {
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
	request.Body = io.NopCloser(bytes.NewReader(copied))
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

// hasControl reports whether a header cannot have the value.
func hasControl(value string) bool {
	return strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
