package pubsub_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/pubsub"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// asGateway has this program be a gateway, in place of the tests.
const asGateway = "DELAYBRIDGE_TEST_PUBSUB_GATEWAY"

const project = "delaybridge-test"

func TestMain(m *testing.M) {
	if os.Getenv(asGateway) != "" {
		fmt.Fprintln(os.Stderr, gateway(os.Args[1], os.Args[2], os.Args[3], os.Args[4]))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// rightToken is what the gateway takes.
const rightToken = "token-1"

// gateway is a way to Pub/Sub, with TLS and a login, that can be killed and stopped, as its own front ends may be;
// the messages are behind it.
func gateway(address, upstream, cert, key string) error {
	to, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // It ends with the tests.
		os.Exit(0)
	}()
	forward := httputil.NewSingleHostReverseProxy(to)
	return (&http.Server{Addr: address, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+rightToken {
			refuse(http.StatusUnauthorized, "UNAUTHENTICATED")(w, "")
			return
		}
		forward.ServeHTTP(w, r)
	})}).ListenAndServeTLS(cert, key)
}

func TestConformance(t *testing.T) {
	url := testenv.PubSub(t)
	sinktest.Run(t, sinktest.Harness{
		Shared: newBroker(t, url),
		Private: func(t *testing.T) sinktest.PrivateBroker {
			address := "127.0.0.1:" + testenv.Port(t)
			b := &privateBroker{broker: newBroker(t, url), listen: address, certs: testenv.NewCerts(t), dir: t.TempDir()}
			b.address = "https://" + address
			right, _ := newTokens(t, rightToken, nil)
			wrong, _ := newTokens(t, "wrong", nil)
			writeAccount(t, b.account(false), right)
			writeAccount(t, b.account(true), wrong)
			b.Start(t)
			t.Cleanup(func() { b.Kill(t) })
			return b
		},
	})
}

// broker is a Pub/Sub, each of whose topics has a subscription that keeps the order.
type broker struct {
	address string // where sinks find it
	server  string
	client  *http.Client
	// isEmulator says that the server is Google's emulator, DELAYBRIDGE_TEST_PUBSUB_EMULATOR=1.
	isEmulator bool

	mu            sync.Mutex
	subscriptions map[string]string                   // by topic
	stored        map[string][]sinktest.StoredMessage // by topic: what was consumed
	hanging       []string                            // topics
}

func newBroker(t testing.TB, url string) *broker {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &broker{
		address: url, server: url, isEmulator: os.Getenv("DELAYBRIDGE_TEST_PUBSUB_EMULATOR") != "", client: &http.Client{Transport: transport, Timeout: time.Minute},
		subscriptions: map[string]string{}, stored: map[string][]sinktest.StoredMessage{},
	}
}

func (b *broker) Features() sinktest.Features {
	features := sinktest.Features{
		Gaps: map[string]string{
			"full_topic":          "no topic is ever full",
			"too_large_for_topic": "no topic has a limit of its own for a message",
		},
		Keyed:        true,
		Missing:      sinks.ReasonTopicMissing,
		InvalidTopic: "orders!",
		TooLarge:     10_000_001,
		Connections:  8,
	}
	if b.isEmulator {
		features.Gaps["topic_appears_in_batch"] = "it makes no topic and its subscription at once: what is published before is lost"
	}
	return features
}

// do makes a request of the REST API.
func (b *broker) do(t testing.TB, method, path string, input, output any) {
	t.Helper()
	text, err := json.Marshal(input)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(context.Background(), method, b.server+"/v1/projects/"+project+"/"+path, bytes.NewReader(text))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := b.client.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err = io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s %s: %s", method, path, text)
	if output != nil {
		require.NoError(t, json.Unmarshal(text, output))
	}
}

func (b *broker) MakeTopic(t testing.TB, topic string, _ sinktest.TopicOptions) {
	t.Helper()
	subscription := testenv.Name(t, "sub")
	name := "projects/" + project + "/subscriptions/" + subscription
	b.do(t, http.MethodPut, "topics/"+url.PathEscape(topic)+"?subscription="+url.QueryEscape(name), map[string]any{}, nil)
	if b.isEmulator { // Before a topic has a subscription its messages are lost.
		b.do(t, http.MethodPut, "subscriptions/"+subscription, map[string]any{
			"topic": "projects/" + project + "/topics/" + topic, "enableMessageOrdering": true, "ackDeadlineSeconds": 60,
		}, nil)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscriptions[topic] = subscription
}

// DeleteTopic implements [sinktest.TopicDeleter].
func (b *broker) DeleteTopic(t testing.TB, topic string) {
	t.Helper()
	b.do(t, http.MethodDelete, "topics/"+topic, nil, nil)
}

// HangTopic implements [sinktest.TopicHanger]. The gateway of such a sink keeps its requests.
func (b *broker) HangTopic(t testing.TB, topic string) {
	t.Helper()
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hanging = append(b.hanging, topic)
}

// hangs is a gateway that answers for all topics but these.
func (b *broker) hangs(t testing.TB, topics []string) (address string) {
	t.Helper()
	to, err := url.Parse(b.address)
	require.NoError(t, err)
	forward := httputil.NewSingleHostReverseProxy(to)
	forward.Transport = &http.Transport{DisableKeepAlives: true}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.ContainsFunc(topics, func(name string) bool { return strings.HasSuffix(r.URL.Path, "/"+name+":publish") }) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// received is a message as a consumer gets it.
type received struct {
	AckID   string `json:"ackId"`
	Message struct {
		Data        []byte            `json:"data"`
		Attributes  map[string]string `json:"attributes"`
		MessageID   string            `json:"messageId"`
		OrderingKey string            `json:"orderingKey"`
	} `json:"message"`
}

// Read implements [sinktest.Broker]. It consumes.
func (b *broker) Read(t testing.TB, topic string, atLeast int) []sinktest.StoredMessage {
	t.Helper()
	b.mu.Lock()
	all := b.stored[topic]
	b.mu.Unlock()
	for _, m := range b.consume(t, topic, atLeast-len(all)) {
		all = append(all, sinktest.StoredMessage{Key: m.Message.OrderingKey, Headers: m.Message.Attributes, Body: m.Message.Data})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stored[topic] = all
	return all
}

// consume takes all that a topic has, and waits until that is so much.
func (b *broker) consume(t testing.TB, topic string, atLeast int) (all []received) {
	t.Helper()
	b.mu.Lock()
	subscription := "subscriptions/" + b.subscriptions[topic]
	b.mu.Unlock()
	seen := map[string]bool{}
	for deadline := time.Now().Add(20 * time.Second); ; {
		var got struct {
			Messages []received `json:"receivedMessages"`
		}
		b.do(t, http.MethodPost, subscription+":pull", map[string]any{"maxMessages": 1000, "returnImmediately": true}, &got)
		if len(got.Messages) == 0 {
			if len(all) >= atLeast || time.Now().After(deadline) {
				return all
			}
			continue
		}
		acks := make([]string, len(got.Messages))
		for i, m := range got.Messages {
			if !seen[m.Message.MessageID] { // Else an answer was late.
				all = append(all, m)
			}
			seen[m.Message.MessageID], acks[i] = true, m.AckID
		}
		b.do(t, http.MethodPost, subscription+":acknowledge", map[string]any{"ackIds": acks}, nil)
	}
}

// NewSink implements [sinktest.Broker].
func (b *broker) NewSink(t testing.TB, options sinktest.Options) sinks.Sink {
	t.Helper()
	address := b.address
	b.mu.Lock()
	hanging := slices.Clone(b.hanging)
	b.mu.Unlock()
	if len(hanging) > 0 {
		address = b.hangs(t, hanging)
	}
	if options.BytesPerSecond > 0 {
		at, err := url.Parse(address)
		require.NoError(t, err)
		proxy := testenv.NewProxy(t, at.Host)
		proxy.Rate(options.BytesPerSecond)
		address = "http://" + proxy.Addr()
	}
	sink, err := pubsub.New(pubsub.Config{Project: project, URL: address, PublishTimeout: options.PublishTimeout})
	require.NoError(t, err)
	return sink
}

// privateBroker is reached by a gateway of its own.
type privateBroker struct {
	*broker
	sinktest.Process

	listen, dir string
	certs       testenv.Certs
}

// account is the file of a service account whose tokens are right, or wrong.
func (b *privateBroker) account(isWrong bool) string {
	return filepath.Join(b.dir, fmt.Sprintf("account-%t.json", isWrong))
}

// NewSink implements [sinktest.Broker].
func (b *privateBroker) NewSink(t testing.TB, options sinktest.Options) sinks.Sink {
	t.Helper()
	sink, err := pubsub.New(pubsub.Config{
		Project: project, URL: b.address, PublishTimeout: options.PublishTimeout,
		CredentialsFile: b.account(options.WrongPassword), TLS: &tlsclient.Files{CAFile: b.certs.CAFile},
	})
	require.NoError(t, err)
	return sink
}

func (b *privateBroker) Start(t testing.TB) {
	t.Helper()
	b.Run(t, asGateway, b.listen, b.server, b.certs.ServerCert, b.certs.ServerKey)
	b.Await(t, b)
}
