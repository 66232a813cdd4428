//go:build unix

package sqs_test

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

const (
	benchBatches = 10 // of 500 messages
	benchCallers = 4
)

// BenchmarkPublish publishes 5,000 messages of 256 bytes to a standard queue in batches of 500, four
// at a time, by the sink and by the client's own requests of ten, one after the other.
//
//	go test -run '^$' -bench Publish -benchtime 3x ./internal/sinks/sqs
func BenchmarkPublish(b *testing.B) {
	broker := newBroker(b, testenv.SQS(b))
	for name, key := range sinktest.Keys {
		b.Run(name, func(b *testing.B) {
			sink := openSink(b, broker.address, nil)
			sinktest.Beside(b, benchCallers, func() [][]message.Message { return makeBatches(b, broker, key) },
				sinktest.Through(b, sink),
				sinktest.Side{Name: "client", Publish: func(batch []message.Message) { plainPublish(b, broker, batch) }})
		})
	}
}

func plainPublish(b *testing.B, broker *broker, batch []message.Message) {
	b.Helper()
	address := aws.String(broker.address + "/000000000000/" + batch[0].Topic)
	var entries []types.SendMessageBatchRequestEntry
	for i := range batch {
		attributes := map[string]types.MessageAttributeValue{}
		for _, header := range batch[i].PublishedHeaders() {
			attributes[header.Name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(header.Value)}
		}
		entries = append(entries, types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(string(batch[i].Body)), MessageAttributes: attributes,
		})
		if len(entries) == 10 || i == len(batch)-1 {
			answer, err := broker.client.SendMessageBatch(b.Context(), &awssqs.SendMessageBatchInput{QueueUrl: address, Entries: entries})
			if err != nil || len(answer.Failed) > 0 {
				b.Error(err, answer)
			}
			entries = nil
		}
	}
}

func makeBatches(b *testing.B, broker *broker, key func(i int) string) [][]message.Message {
	b.Helper()
	queue := testenv.Name(b, "bench")
	broker.makeQueue(b, queue)
	batches := sinktest.Batches(sinktest.NewMessage(b, queue, ""), benchBatches, key)
	text := bytes.Repeat([]byte("m"), len(batches[0][0].Body))
	for _, batch := range batches {
		for i := range batch {
			batch[i].Body = text
		}
	}
	return batches
}
