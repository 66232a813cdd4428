package rabbitmq

import "context"

// channelsMax bounds the channels of a connection, one for each route in use.
// Where there are more, they wait for each other.
const channelsMax = 128

// channelTable is the channels of a connection, whose mu guards it.
type channelTable struct {
	all     []*channel
	byTopic map[string]*channel
	// freed is closed, and replaced, when a channel has become free and isAwaited.
	freed     chan struct{}
	isAwaited bool
}

func newChannelTable() channelTable {
	return channelTable{byTopic: map[string]*channel{}, freed: make(chan struct{})}
}

// channelFor returns the channel of a topic, which is the caller's until it calls
// leave. Where all are in use for other topics it returns none, but what is
// closed when one may be free.
func (c *connection) channelFor(topic string) (*channel, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return nil, nil, c.cause
	}
	found, ok := c.channels.byTopic[topic]
	switch {
	case ok:
	case len(c.channels.all) < c.channelsMax():
		found = newChannel(c)
		c.channels.all = append(c.channels.all, found)
		c.work.Go(found.run)
	default:
		if found = c.channels.unused(); found == nil {
			c.channels.isAwaited = true
			return nil, c.channels.freed, nil
		}
		delete(c.channels.byTopic, found.topic)
	}
	if !ok {
		found.topic = topic
		c.channels.byTopic[topic] = found
	}
	found.users.Add(1)
	return found, nil, nil
}

// awaitChannel is channelFor for a caller that waits.
func (c *connection) awaitChannel(ctx context.Context, topic string) (*channel, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.config.PublishTimeout, errNoChannel)
	defer cancel()
	for {
		found, freed, err := c.channelFor(topic)
		if found != nil || err != nil {
			return found, err
		}
		select {
		case <-freed:
		case <-c.done:
		case <-ctx.Done():
			if err := c.refusal(); err != nil {
				return nil, err
			}
			return nil, context.Cause(ctx)
		}
	}
}

// unused returns a channel that is free, nil where there is none.
func (c *channelTable) unused() *channel {
	for _, channel := range c.all {
		if channel.users.Load() == 0 {
			return channel
		}
	}
	return nil
}

// leave ends the use of a channel.
func (c *connection) leave(channel *channel) {
	if channel.users.Add(-1) > 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.channels.isAwaited {
		c.channels.isAwaited = false
		close(c.channels.freed)
		c.channels.freed = make(chan struct{})
	}
}

// channelsMax leaves ids for channels that are being closed, where the broker
// allows only a few.
func (c *connection) channelsMax() int {
	return max(1, min(channelsMax, int(c.amqp.Config.ChannelMax)/2))
}
