package trial

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// sqsBroker is an ElasticMQ, whose standard queues are the topics. It keeps everything in memory.
type sqsBroker struct {
	server *service.Server
	client *sqs.Client
}

const sqsRegion = "eu-central-1"

func startSQS(ctx context.Context) (Broker, error) {
	// The login of the bridge is that of its environment.
	if err := errors.Join(os.Setenv("AWS_ACCESS_KEY_ID", "key"), os.Setenv("AWS_SECRET_ACCESS_KEY", "secret")); err != nil {
		return nil, err
	}
	server, err := service.StartSQS(ctx)
	if err != nil {
		return nil, err
	}
	return sqsBroker{server, sqs.New(sqs.Options{
		Region: sqsRegion, Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""), BaseEndpoint: aws.String(server.URL()),
	})}, nil
}

func (b sqsBroker) Name() string            { return "sqs" }
func (b sqsBroker) Server() *service.Server { return b.server }
func (b sqsBroker) SinkConfig() string {
	return fmt.Sprintf(`{type: sqs, region: %s, url: %q}`, sqsRegion, b.server.URL())
}

func (b sqsBroker) MakeTopic(ctx context.Context, topic string) error {
	_, err := b.client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &topic})
	return err
}

func (b sqsBroker) address(topic string) *string {
	return aws.String(b.server.URL() + "/000000000000/" + topic)
}

// Consume asks again when the server comes back.
func (b sqsBroker) Consume(ctx context.Context, topic string, each func(Record)) error {
	for ctx.Err() == nil {
		got, err := b.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: b.address(topic), MaxNumberOfMessages: 10, WaitTimeSeconds: 1, MessageAttributeNames: []string{"All"},
		})
		if err != nil {
			_ = Sleep(ctx, 200*time.Millisecond) // A broker that is down is what some runs are about.
			continue
		}
		deletes := make([]types.DeleteMessageBatchRequestEntry, len(got.Messages))
		for i, m := range got.Messages {
			record, err := recordOfSQS(m)
			if err != nil {
				return err
			}
			each(record)
			deletes[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle}
		}
		if len(deletes) > 0 {
			_, _ = b.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: b.address(topic), Entries: deletes}) // Else they come again.
		}
	}
	return nil
}

func recordOfSQS(m types.Message) (record Record, err error) {
	attribute := func(name string) string { return aws.ToString(m.MessageAttributes[name].StringValue) }
	record = Record{Body: []byte(aws.ToString(m.Body)), At: time.Now(), Seen: true}
	if attribute("delay-encoding") == "base64" {
		record.Body, err = base64.StdEncoding.DecodeString(aws.ToString(m.Body))
	}
	err = errors.Join(err, json.Unmarshal([]byte(attribute("delay-headers")), &record.Headers))
	record.ID, record.Key = record.Headers["delay-id"], record.Headers["delay-key"]
	return record, err
}

func (b sqsBroker) Stored(ctx context.Context, topic string) (int64, error) {
	const count = types.QueueAttributeNameApproximateNumberOfMessages
	answer, err := b.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: b.address(topic), AttributeNames: []types.QueueAttributeName{count}})
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(answer.Attributes[string(count)], 10, 64)
}

func (b sqsBroker) Publisher(limit time.Duration) (publish outbox.Publisher, end func(), err error) {
	return func(ctx context.Context, topic string, headers map[string]string, body []byte) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		text, err := json.Marshal(headers)
		if err != nil {
			return err
		}
		_, err = b.client.SendMessage(ctx, &sqs.SendMessageInput{
			QueueUrl: b.address(topic), MessageBody: aws.String(base64.StdEncoding.EncodeToString(body)),
			MessageAttributes: map[string]types.MessageAttributeValue{
				"delay-headers":  {DataType: aws.String("String"), StringValue: aws.String(string(text))},
				"delay-encoding": {DataType: aws.String("String"), StringValue: aws.String("base64")},
			},
		})
		return err
	}, func() {}, nil
}

// BreakTopic is that of [Broker]. No queue of the emulator fails alone.
func (b sqsBroker) BreakTopic(_ context.Context, topic string, fault Fault) (heal func(context.Context) error, err error) {
	if fault == Missing {
		return func(ctx context.Context) error { return b.MakeTopic(ctx, topic) }, nil
	}
	return nil, fmt.Errorf("a queue cannot be %s while its server works", fault)
}
