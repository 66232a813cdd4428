package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

const (
	// claimIdle is the silence after which an entry goes to another bridge. While a bridge
	// works on it, it tells Redis so three times as often.
	claimIdle = 10 * time.Second
	// readBlock is how long one request for new entries lasts, and so how soon Run ends.
	readBlock = time.Second
	// forgotten is the silence after which a consumer without pending entries is removed.
	forgotten = time.Hour
	// handBackTime bounds handing back unfinished entries at the end.
	handBackTime = time.Second
)

// compensations are the messages of one topic: a consumer group of its stream. Missing
// streams and groups are made. Handled entries are deleted from the stream.
type compensations struct {
	open func() (goredis.UniversalClient, error)
	name string // the consumer's
	source.Options
}

// NewSource makes the source of a topic's compensation messages. It connects to nothing
// yet: open makes a client for each session, like a sink's.
func NewSource(open func() (goredis.UniversalClient, error), options source.Options) (source.Source, error) {
	if err := options.Check(); err != nil {
		return nil, err
	}
	return &compensations{open: open, name: rand.Text(), Options: options}, nil
}

// Run implements [source.Source].
func (c *compensations) Run(ctx context.Context, handle source.Handler) {
	source.Reconnect(ctx, &c.Options, func(ctx context.Context) error { return c.session(ctx, handle) })
}

func (c *compensations) session(ctx context.Context, handle source.Handler) (err error) {
	client, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := c.setUp(ctx, client); err != nil {
		return err
	}
	if !c.AwaitReady(ctx) {
		return ctx.Err()
	}
	c.Connected(ctx)
	isOwed := true // Entries pending from an earlier session come first.
	for {
		batch, err := c.read(ctx, client, isOwed)
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			isOwed = false
			continue
		}
		if err := c.attend(ctx, client, batch, handle); err != nil {
			return err
		}
	}
}

// setUp makes the streams that are missing, and the group.
func (c *compensations) setUp(ctx context.Context, client goredis.UniversalClient) error {
	ctx, cancel := context.WithTimeout(ctx, source.SetUpTimeout)
	defer cancel()
	dead := source.DeadTopic(c.Topic)
	switch n, err := client.Exists(ctx, dead).Result(); {
	case err != nil:
		return fmt.Errorf("look for stream %s: %w", dead, err)
	case n == 0: // Only a group, or an entry, makes a stream.
		if err := makeGroup(ctx, client, dead, c.Group); err != nil {
			return err
		}
	}
	if err := makeGroup(ctx, client, c.Topic, c.Group); err != nil {
		return err
	}
	consumers, err := client.XInfoConsumers(ctx, c.Topic, c.Group).Result()
	if err != nil {
		return fmt.Errorf("list consumers: %w", err)
	}
	for _, other := range consumers { // Each bridge has left one behind.
		if other.Pending == 0 && other.Idle > forgotten {
			if err := client.XGroupDelConsumer(ctx, c.Topic, c.Group, other.Name).Err(); err != nil {
				return fmt.Errorf("remove consumer: %w", err)
			}
		}
	}
	return nil
}

func makeGroup(ctx context.Context, client goredis.UniversalClient, stream, group string) error {
	err := client.XGroupCreateMkStream(ctx, stream, group, "0").Err()
	if err != nil && code(err) != "BUSYGROUP" { // There is one.
		return fmt.Errorf("make group %s of stream %s: %w", group, stream, err)
	}
	return nil
}

// delivery is an entry, and whether it may have been handled before.
type delivery struct {
	goredis.XMessage
	isAgain bool
}

// read waits for entries: those that are owed to us, or else those of bridges that are
// silent, or new ones. It returns none after a while without any.
func (c *compensations) read(ctx context.Context, client goredis.UniversalClient, isOwed bool) ([]delivery, error) {
	from, block := ">", readBlock
	if isOwed {
		from, block = "0", -1
	} else if batch, err := c.claim(ctx, client); err != nil || len(batch) > 0 {
		return batch, err
	}
	streams, err := client.XReadGroup(ctx, &goredis.XReadGroupArgs{
		Group: c.Group, Consumer: c.name, Streams: []string{c.Topic, from}, Count: source.BatchMax, Block: block,
	}).Result()
	if errors.Is(err, goredis.Nil) {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("read group: %w", err)
	}
	return deliveries(streams[0].Messages, isOwed), nil
}

// claim takes over what bridges that are silent were given.
func (c *compensations) claim(ctx context.Context, client goredis.UniversalClient) ([]delivery, error) {
	entries, _, err := client.XAutoClaim(ctx, &goredis.XAutoClaimArgs{
		Stream: c.Topic, Group: c.Group, Consumer: c.name, MinIdle: claimIdle, Start: "0", Count: source.BatchMax,
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return deliveries(entries, true), nil
}

func deliveries(entries []goredis.XMessage, isAgain bool) []delivery {
	batch := make([]delivery, len(entries))
	for i, entry := range entries {
		batch[i] = delivery{entry, isAgain}
	}
	return batch
}

// attend hands the batch to the handler, and keeps telling Redis that it is in work.
func (c *compensations) attend(ctx context.Context, client goredis.UniversalClient, batch []delivery, handle source.Handler) error {
	list, ids := make([]*source.Delivery, len(batch)), make([]string, len(batch))
	for i, d := range batch {
		body, _ := d.Values[FieldBody].(string) // What has none cannot be decoded, and is buried.
		list[i], ids[i] = &source.Delivery{Body: []byte(body), Redelivered: d.isAgain}, d.ID
	}
	defer source.Beat(claimIdle/3, func() { // If it fails, entries come again.
		_ = client.XClaimJustID(ctx, &goredis.XClaimArgs{Stream: c.Topic, Group: c.Group, Consumer: c.name, Messages: ids}).Err()
	})()
	err := source.Attend(ctx, list, handle, func(ctx context.Context, indices []int) error {
		done := make([]string, len(indices))
		for n, i := range indices {
			done[n] = ids[i]
		}
		_, err := client.TxPipelined(ctx, func(p goredis.Pipeliner) error {
			p.XAck(ctx, c.Topic, c.Group, done...)
			p.XDel(ctx, c.Topic, done...)
			return nil
		})
		if err != nil {
			return fmt.Errorf("acknowledge: %w", err)
		}
		return nil
	})
	if err != nil {
		c.handBack(ctx, client, ids)
	}
	return err
}

// handBack gives unacknowledged entries to another bridge at once. If it fails, that
// waits until we have been silent for long enough.
func (c *compensations) handBack(ctx context.Context, client goredis.UniversalClient, ids []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handBackTime)
	defer cancel()
	args := []any{"XCLAIM", c.Topic, c.Group, c.name, 0}
	for _, id := range ids {
		args = append(args, id)
	}
	_ = client.Do(ctx, append(args, "IDLE", claimIdle.Milliseconds(), "JUSTID")...).Err()
}
