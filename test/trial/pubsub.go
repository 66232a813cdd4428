package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// pubsubBroker is Google's server for tests, which keeps everything in memory. Each topic has a
// subscription of its name.
type pubsubBroker struct{ server *service.Server }

const pubsubProject = "delaybridge-trial"

func startPubSub(ctx context.Context) (Broker, error) {
	server, err := service.StartPubSub(ctx)
	if err != nil {
		return nil, err
	}
	return pubsubBroker{server}, nil
}

func (b pubsubBroker) Name() string            { return "pubsub" }
func (b pubsubBroker) Server() *service.Server { return b.server }
func (b pubsubBroker) SinkConfig() string {
	return fmt.Sprintf(`{type: pubsub, project: %s, url: %q}`, pubsubProject, b.server.URL())
}

// do makes a request of the REST API.
func (b pubsubBroker) do(ctx context.Context, method, path string, input, output any) error {
	text, err := json.Marshal(input)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, b.server.URL()+"/v1/projects/"+pubsubProject+"/"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	text, err = io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	if output == nil {
		return nil
	}
	return json.Unmarshal(text, output)
}

func (b pubsubBroker) MakeTopic(ctx context.Context, topic string) error {
	subscription := "projects/" + pubsubProject + "/subscriptions/" + topic
	return b.do(ctx, http.MethodPut, "topics/"+topic+"?subscription="+url.QueryEscape(subscription), struct{}{}, nil)
}

type pubsubMessage struct {
	AckID   string `json:"ackId"`
	Message struct {
		Data        []byte            `json:"data"`
		Attributes  map[string]string `json:"attributes"`
		OrderingKey string            `json:"orderingKey"`
	} `json:"message"`
}

// Consume asks again when the server comes back.
func (b pubsubBroker) Consume(ctx context.Context, topic string, each func(Record)) error {
	for ctx.Err() == nil {
		var got struct {
			Messages []pubsubMessage `json:"receivedMessages"`
		}
		if err := b.do(ctx, http.MethodPost, "subscriptions/"+topic+":pull", map[string]any{"maxMessages": 1000}, &got); err != nil {
			_ = Sleep(ctx, 200*time.Millisecond) // A broker that is down is what some runs are about.
			continue
		}
		acks := make([]string, len(got.Messages))
		for i, m := range got.Messages {
			headers := m.Message.Attributes
			each(Record{ID: headers["delay-id"], Key: m.Message.OrderingKey, Headers: headers, Body: m.Message.Data, At: time.Now(), Seen: true})
			acks[i] = m.AckID
		}
		if len(acks) > 0 {
			_ = b.do(ctx, http.MethodPost, "subscriptions/"+topic+":acknowledge", map[string]any{"ackIds": acks}, nil) // Else they come again.
		}
	}
	return nil
}

// Stored is that of [Broker]. Pub/Sub does not tell how many messages a subscription has.
func (b pubsubBroker) Stored(context.Context, string) (int64, error) {
	return 0, errors.New("Pub/Sub does not tell what a subscription has")
}

func (b pubsubBroker) Publisher(limit time.Duration) (publish outbox.Publisher, end func(), err error) {
	return func(ctx context.Context, topic string, headers map[string]string, body []byte) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return b.do(ctx, http.MethodPost, "topics/"+topic+":publish", map[string]any{
			"messages": []map[string]any{{"data": body, "attributes": headers}},
		}, nil)
	}, func() {}, nil
}

// BreakTopic is that of [Broker]. No topic of the server fails alone.
func (b pubsubBroker) BreakTopic(_ context.Context, topic string, fault Fault) (heal func(context.Context) error, err error) {
	if fault == Missing {
		return func(ctx context.Context) error { return b.MakeTopic(ctx, topic) }, nil
	}
	return nil, fmt.Errorf("a topic cannot be %s while its server works", fault)
}
