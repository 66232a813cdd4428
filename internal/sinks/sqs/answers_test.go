package sqs_test

import (
	"context"
	"crypto/md5" //nolint:gosec // SQS' checksum
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/sinks/sqs"
)

// answers speaks SQS' protocol (awsJson1_0) with the answers that a test wants, which no emulator gives.
type answers struct {
	// The answer to each, a nil one is as of a queue that works.
	ask, send, attributes func(w http.ResponseWriter, body string) (isDone bool)

	mu       sync.Mutex
	asked    int
	requests [][]string // the bodies of the messages of each
	headers  []http.Header
}

type sent struct {
	Entries []struct {
		Id, MessageBody, MessageGroupId string //nolint:staticcheck // SQS' names
	}
}

// ServeHTTP implements [http.Handler].
func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	a.mu.Lock()
	a.headers = append(a.headers, r.Header)
	a.mu.Unlock()
	switch _, call, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); call {
	case "GetQueueUrl":
		a.mu.Lock()
		a.asked++
		a.mu.Unlock()
		if a.ask == nil || !a.ask(w, string(text)) {
			var input struct{ QueueName string }
			_ = json.Unmarshal(text, &input)
			_ = json.NewEncoder(w).Encode(map[string]string{"QueueUrl": "https://sqs.example.com/123456789012/" + input.QueueName})
		}
	case "GetQueueAttributes":
		a.attributes(w, string(text))
	default:
		var input sent
		_ = json.Unmarshal(text, &input)
		var bodies []string
		for _, e := range input.Entries {
			bodies = append(bodies, e.MessageBody)
		}
		a.mu.Lock()
		a.requests = append(a.requests, bodies)
		a.mu.Unlock()
		if a.send == nil || !a.send(w, string(text)) {
			store(w, string(text), nil)
		}
	}
}

// store answers that all were stored, but those whose bodies fail with these codes.
func store(w http.ResponseWriter, text string, failing map[string]string) {
	var input sent
	_ = json.Unmarshal([]byte(text), &input)
	answer := map[string][]map[string]any{"Successful": {}, "Failed": {}}
	for _, e := range input.Entries {
		if code := failing[e.MessageBody]; code != "" {
			answer["Failed"] = append(answer["Failed"], map[string]any{"Id": e.Id, "Code": code, "SenderFault": code != "InternalError", "Message": e.MessageBody})
			continue
		}
		sum := md5.Sum([]byte(e.MessageBody)) //nolint:gosec // SQS' checksum
		answer["Successful"] = append(answer["Successful"], map[string]any{"Id": e.Id, "MessageId": "stored", "MD5OfMessageBody": hex.EncodeToString(sum[:])})
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// refuse answers with an error, as AWS' documents say.
func refuse(status int, code, query string) func(http.ResponseWriter, string) bool {
	return func(w http.ResponseWriter, _ string) bool {
		w.Header().Set("X-Amzn-Requestid", "request-1")
		if query != "" {
			w.Header().Set("X-Amzn-Query-Error", query+";Sender")
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"__type": "com.amazonaws.sqs#" + code, "message": "what AWS says"})
		return true
	}
}

func (a *answers) sends() [][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

func (a *answers) asks() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// open opens a sink on such a server.
func (a *answers) open(t testing.TB, change func(*sqs.Config)) *sqs.Sink {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return openSink(t, server.URL, change)
}

func openSink(t testing.TB, url string, change func(*sqs.Config)) *sqs.Sink {
	t.Helper()
	config := sqs.Config{Region: "eu-central-1", URL: url, Credentials: login, PublishTimeout: time.Minute}
	if change != nil {
		change(&config)
	}
	sink, err := sqs.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close(context.Background())) })
	return sink
}
