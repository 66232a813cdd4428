package retry_test

import (
	"context"
	"fmt"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/delaybridge/delaybridge/delay/retry"
	"github.com/delaybridge/delaybridge/test/retry/consumers"
)

// consumeFranz consumes with franz-go, in a consumer group whose clients commit by themselves: kgo.DisableAutoCommit.
func consumeFranz(ctx context.Context, client *kgo.Client, again *retry.Retrier, handle consumers.Handler) error {
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			m := retry.Message{
				Name:  fmt.Sprintf("%s/%d/%d", record.Topic, record.Partition, record.Offset),
				Topic: record.Topic, Key: string(record.Key), Headers: map[string]string{}, Body: record.Value,
			}
			for _, h := range record.Headers {
				m.Headers[h.Key] = string(h.Value)
			}
			if err := again.Handle(ctx, m, handle); err != nil {
				return err // This record and later ones are not committed: begin here again.
			}
			if err := client.CommitRecords(ctx, record); err != nil {
				return err
			}
		}
	}
}

// uuidHeader has the UUID of a message of Watermill, at all its brokers.
const uuidHeader = "_watermill_message_uuid"

// redeliver is a middleware: what a handler cannot handle is delivered again, with the UUID that its publisher gave it.
func redeliver(again *retry.Retrier) message.HandlerMiddleware {
	return func(handle message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			m := retry.Message{
				Name: msg.UUID, Topic: message.SubscribeTopicFromCtx(msg.Context()), Headers: map[string]string{uuidHeader: msg.UUID}, Body: msg.Payload,
			}
			maps.Copy(m.Headers, msg.Metadata)
			var produced []*message.Message
			err := again.Handle(msg.Context(), m, func(context.Context, retry.Message) (err error) {
				if produced, err = handle(msg); err != nil {
					produced = nil
				}
				return err
			})
			return produced, err // The router acknowledges the message, or after an error asks for it once more.
		}
	}
}
