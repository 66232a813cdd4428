package webhook_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/internal/sinks/webhook"
)

const (
	// largest is the largest body that the receiver takes.
	largest = 1 << 20
	// readMost bounds what it reads of one, to refuse it.
	readMost = 16 << 20
	secret   = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// receiver is a server that takes webhooks, and stores each in the file of its topic before it
// answers. A topic is there if its file is.
type receiver struct {
	dir string
	mu  sync.Mutex
}

// limits are what a topic of a [receiver] is like.
type limits struct {
	sinktest.TopicOptions

	Hangs bool
}

// record is a webhook as it is stored, a line each.
type record struct {
	Headers map[string]string
	Body    []byte
}

// ServeHTTP implements [http.Handler].
func (s *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, readMost))
	if err != nil {
		return
	}
	if err := Verify(secret, r.Header, body, time.Now()); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	name := filepath.Join(s.dir, filepath.Base(r.URL.Path))
	var is limits
	if text, err := os.ReadFile(name + ".limits"); err == nil {
		_ = json.Unmarshal(text, &is)
	}
	switch {
	case is.Hangs:
		<-r.Context().Done()
	case len(body) > largest || is.MaxMessageBytes > 0 && len(body) > is.MaxMessageBytes:
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	default:
		w.WriteHeader(s.store(name, is, r.Header, body))
	}
}

func (s *receiver) store(name string, is limits, header http.Header, body []byte) (status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, err := os.OpenFile(name, os.O_APPEND|os.O_RDWR, 0)
	if err != nil {
		return http.StatusNotFound
	}
	defer func() { _ = file.Close() }()
	if is.MaxMessages > 0 {
		if content, _ := io.ReadAll(file); strings.Count(string(content), "\n{") >= is.MaxMessages {
			return http.StatusInsufficientStorage
		}
	}
	kept := record{Headers: map[string]string{}, Body: body}
	for name, values := range header {
		kept.Headers[strings.ToLower(name)] = strings.Join(values, "\n")
	}
	line, _ := json.Marshal(kept)
	// What a killed receiver has left of a line is no part of the next one.
	if _, err := fmt.Fprintf(file, "\n%s\n", line); err != nil {
		return http.StatusInternalServerError
	}
	return http.StatusNoContent
}

// serve serves until the process ends, or ours.
func serve(dir, address, certFile, keyFile string) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // It ends with the process that has started this one.
		os.Exit(0)
	}()
	listener, err := net.Listen("tcp", address) //nolint:noctx // for ever
	if err != nil {
		return err
	}
	server := &http.Server{Handler: &receiver{dir: dir}, ReadHeaderTimeout: time.Minute}
	server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} // HTTP/1.1
	return server.ServeTLS(listener, certFile, keyFile)
}

// read returns what a topic of the folder stores.
func read(t testing.TB, dir, topic string) (stored []sinktest.StoredMessage) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, topic))
	require.NoError(t, err)
	for line := range strings.Lines(string(content)) {
		var kept record
		if json.Unmarshal([]byte(line), &kept) != nil {
			continue
		}
		if kept.Headers["content-type"] == "application/octet-stream" {
			delete(kept.Headers, "content-type") // The sink's own, where the message has none.
		}
		key := kept.Headers[webhook.HeaderKey]
		delete(kept.Headers, webhook.HeaderKey)
		stored = append(stored, sinktest.StoredMessage{Key: key, Headers: kept.Headers, Body: kept.Body})
	}
	return stored
}
