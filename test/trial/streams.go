package trial

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// streamsBroker is a Redis of its own, whose streams are the topics.
type streamsBroker struct{ server *service.Server }

func startStreams(ctx context.Context) (Broker, error) {
	server, err := service.StartRedis(ctx, "--appendonly", "yes", "--appendfsync", "always")
	return streamsBroker{server}, err
}

func (b streamsBroker) Name() string            { return "redis" }
func (b streamsBroker) Server() *service.Server { return b.server }
func (b streamsBroker) SinkConfig() string {
	return fmt.Sprintf(`{type: redis, url: %q}`, b.server.URL())
}

func (b streamsBroker) with(do func(*redis.Client) error) error {
	client, err := b.client()
	if err != nil {
		return err
	}
	return errors.Join(do(client), client.Close())
}

func (b streamsBroker) client() (*redis.Client, error) {
	options, err := redis.ParseURL(b.server.URL())
	if err != nil {
		return nil, err
	}
	return redis.NewClient(options), nil
}

func (b streamsBroker) MakeTopic(ctx context.Context, topic string) error {
	return b.with(func(c *redis.Client) error { return c.XGroupCreateMkStream(ctx, topic, "all", "0").Err() })
}

// Consume asks again when the server comes back.
func (b streamsBroker) Consume(ctx context.Context, topic string, each func(Record)) error {
	client, err := b.client()
	if err != nil {
		return err
	}
	for last := "0"; ctx.Err() == nil; {
		streams, err := client.XRead(ctx, &redis.XReadArgs{Streams: []string{topic, last}, Count: 1000, Block: time.Second}).Result()
		if err != nil {
			if !errors.Is(err, redis.Nil) {
				_ = Sleep(ctx, 200*time.Millisecond) // A broker that is down is what some runs are about.
			}
			continue
		}
		for _, entry := range streams[0].Messages {
			last = entry.ID
			each(recordOf(entry))
		}
	}
	return client.Close()
}

func recordOf(entry redis.XMessage) Record {
	record := Record{Headers: map[string]string{}}
	for name, value := range entry.Values {
		record.Headers[name], _ = value.(string)
	}
	record.ID, record.Key, record.Body = record.Headers["delay-id"], record.Headers["delay-key"], []byte(record.Headers["body"])
	at, _, _ := strings.Cut(entry.ID, "-")
	ms, _ := strconv.ParseInt(at, 10, 64)
	record.At = time.UnixMilli(ms)
	return record
}

func (b streamsBroker) Stored(ctx context.Context, topic string) (n int64, err error) {
	err = b.with(func(c *redis.Client) (err error) {
		n, err = c.XLen(ctx, topic).Result()
		return err
	})
	return n, err
}

func (b streamsBroker) Publisher(limit time.Duration) (publish outbox.Publisher, end func(), err error) {
	client, err := b.client()
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, topic string, headers map[string]string, body []byte) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		fields := make([]any, 0, 2*len(headers)+2)
		for name, value := range headers {
			fields = append(fields, name, value)
		}
		return client.XAdd(ctx, &redis.XAddArgs{Stream: topic, Values: append(fields, "body", body)}).Err()
	}, func() { _ = client.Close() }, nil
}

// BreakTopic is that of [Broker]. No stream hangs alone.
func (b streamsBroker) BreakTopic(ctx context.Context, topic string, fault Fault) (heal func(context.Context) error, err error) {
	switch fault {
	case Missing:
		return func(ctx context.Context) error { return b.MakeTopic(ctx, topic) }, nil
	case Refusing: // The key is something else.
		err := b.with(func(c *redis.Client) error { return c.Set(ctx, topic, "", 0).Err() })
		return func(ctx context.Context) error {
			err := b.with(func(c *redis.Client) error { return c.Del(ctx, topic).Err() })
			return errors.Join(err, b.MakeTopic(ctx, topic))
		}, err
	default:
		return nil, fmt.Errorf("a stream cannot be %s while its server works", fault)
	}
}
