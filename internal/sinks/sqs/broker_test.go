package sqs_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/internal/sinks/sqs"
)

// asGateway has this program be a gateway, in place of the tests.
const asGateway = "DELAYBRIDGE_TEST_SQS_GATEWAY"

func TestMain(m *testing.M) {
	if os.Getenv(asGateway) != "" {
		fmt.Fprintln(os.Stderr, gateway(os.Args[1], os.Args[2]))
		os.Exit(1)
	}
	for name, value := range map[string]string{"AWS_MAX_ATTEMPTS": "5", "AWS_REGION": "", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// gateway is a way to SQS that can be killed and stopped, as its own front ends may be; the
// messages are behind it.
func gateway(address, upstream string) error {
	to, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // It ends with the tests.
		os.Exit(0)
	}()
	return (&http.Server{Addr: address, Handler: httputil.NewSingleHostReverseProxy(to), ReadHeaderTimeout: time.Minute}).ListenAndServe()
}

// The suite's topics are FIFO queues: others keep no order that could be looked at.
func TestConformance(t *testing.T) {
	url := testenv.SQS(t)
	shared := newBroker(t, url)
	sinktest.Run(t, sinktest.Harness{
		Shared: shared,
		Private: func(t *testing.T) sinktest.PrivateBroker {
			address := "127.0.0.1:" + testenv.Port(t)
			b := &privateBroker{broker: newBroker(t, url), listen: address}
			b.address = "http://" + address
			b.Start(t)
			t.Cleanup(func() { b.Kill(t) })
			return b
		},
	})
}

const fifo = ".fifo"

// broker is an SQS, whose topics are FIFO queues.
type broker struct {
	address string // where sinks find it
	client  *awssqs.Client

	mu      sync.Mutex
	stored  map[string][]sinktest.StoredMessage // by topic: what was consumed
	hanging []string                            // queues
}

func newBroker(t testing.TB, url string) *broker {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &broker{address: url, stored: map[string][]sinktest.StoredMessage{}, client: awssqs.New(awssqs.Options{
		Region: "eu-central-1", Credentials: login, BaseEndpoint: &url, HTTPClient: &http.Client{Transport: transport},
	})}
}

var login = credentials.NewStaticCredentialsProvider("key", "secret", "")

func (*broker) Features() sinktest.Features {
	return sinktest.Features{
		Gaps: map[string]string{
			"wrong_password":      "the emulator takes any login; see `sqs.TestAnswers`",
			"full_topic":          "no queue is ever full",
			"too_large_for_topic": "the emulator has no limit of a queue's own; see `sqs.TestAnswers`",
		},
		Keyed:        true,
		Missing:      sinks.ReasonTopicMissing,
		InvalidTopic: "orders!",
		TooLarge:     1<<20 + 1,
		BatchLimit:   1 << 20,
		Connections:  8,
		Deep:         100,
	}
}

func (b *broker) MakeTopic(t testing.TB, topic string, _ sinktest.TopicOptions) {
	t.Helper()
	b.makeQueue(t, topic+fifo)
}

func (b *broker) makeQueue(t testing.TB, name string) (address string) {
	t.Helper()
	attributes := map[string]string{}
	if name[max(0, len(name)-len(fifo)):] == fifo {
		attributes["FifoQueue"] = "true"
	}
	made, err := b.client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	require.NoError(t, err)
	return *made.QueueUrl
}

func (b *broker) addressOf(t testing.TB, queue string) *string {
	t.Helper()
	found, err := b.client.GetQueueUrl(context.Background(), &awssqs.GetQueueUrlInput{QueueName: &queue})
	require.NoError(t, err)
	return found.QueueUrl
}

// DeleteTopic implements [sinktest.TopicDeleter].
func (b *broker) DeleteTopic(t testing.TB, topic string) {
	t.Helper()
	_, err := b.client.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: b.addressOf(t, topic+fifo)})
	require.NoError(t, err)
}

// HangTopic implements [sinktest.TopicHanger]. The gateway of such a sink keeps its requests.
func (b *broker) HangTopic(t testing.TB, topic string) {
	t.Helper()
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hanging = append(b.hanging, topic+fifo)
}

// hangs is a gateway that answers for all queues but these.
func (b *broker) hangs(t testing.TB, queues []string) (address string) {
	t.Helper()
	to, err := url.Parse(b.address)
	require.NoError(t, err)
	forward := httputil.NewSingleHostReverseProxy(to)
	forward.Transport = &http.Transport{DisableKeepAlives: true}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(io.LimitReader(r.Body, 4<<20))
		if slices.ContainsFunc(queues, func(name string) bool { return bytes.Contains(text, []byte("/"+name+`"`)) }) {
			<-r.Context().Done()
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Read implements [sinktest.Broker]. It consumes.
func (b *broker) Read(t testing.TB, topic string, atLeast int) []sinktest.StoredMessage {
	t.Helper()
	b.mu.Lock()
	all := b.stored[topic]
	b.mu.Unlock()
	for _, m := range b.consume(t, topic+fifo, atLeast-len(all)) {
		all = append(all, storedOf(t, m))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stored[topic] = all
	return all
}

// consume takes all that a queue has, and waits until that is so much.
func (b *broker) consume(t testing.TB, queue string, atLeast int) (all []types.Message) {
	t.Helper()
	address, seen := b.addressOf(t, queue), map[string]bool{}
	for deadline := time.Now().Add(20 * time.Second); ; {
		got, err := b.client.ReceiveMessage(context.Background(), &awssqs.ReceiveMessageInput{
			QueueUrl: address, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"}, VisibilityTimeout: 5,
		})
		require.NoError(t, err)
		if len(got.Messages) == 0 {
			if len(all) >= atLeast || time.Now().After(deadline) {
				return all
			}
			continue
		}
		deletes := make([]types.DeleteMessageBatchRequestEntry, len(got.Messages))
		for i, m := range got.Messages {
			if !seen[*m.MessageId] { // Else an answer was late.
				all = append(all, m)
			}
			seen[*m.MessageId] = true
			deletes[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle}
		}
		_, err = b.client.DeleteMessageBatch(context.Background(), &awssqs.DeleteMessageBatchInput{QueueUrl: address, Entries: deletes})
		require.NoError(t, err)
	}
}

// storedOf is how a consumer reads a message.
func storedOf(t testing.TB, m types.Message) (s sinktest.StoredMessage) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(attributeOf(m, "delay-headers")), &s.Headers))
	s.Key = s.Headers["delay-key"]
	delete(s.Headers, "delay-key")
	switch attributeOf(m, "delay-encoding") {
	case "base64":
		var err error
		s.Body, err = base64.StdEncoding.DecodeString(*m.Body)
		require.NoError(t, err)
	case "":
		s.Body = []byte(*m.Body)
	}
	return s
}

func attributeOf(m types.Message, name string) string {
	return aws.ToString(m.MessageAttributes[name].StringValue)
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
	sink, err := sqs.New(sqs.Config{Region: "eu-central-1", URL: address, Credentials: login, PublishTimeout: options.PublishTimeout})
	require.NoError(t, err)
	return fifoSink{sink}
}

// fifoSink publishes to FIFO queues, whose names the suite does not know.
type fifoSink struct{ *sqs.Sink }

// Publish implements [sinks.Sink].
func (s fifoSink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].Topic += fifo
	}
	s.Sink.Publish(ctx, batch, outcomes)
}

// privateBroker is reached by a gateway of its own.
type privateBroker struct {
	*broker
	sinktest.Process

	listen string
}

func (b *privateBroker) Start(t testing.TB) {
	t.Helper()
	b.Run(t, asGateway, b.listen, aws.ToString(b.client.Options().BaseEndpoint))
	b.Await(t, b)
}
