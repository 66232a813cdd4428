package rabbitmq

import (
	"context"
	"slices"
)

// channelsMax bounds the channels of a connection, one for each route in use.
// If there are more, they wait for each other.
const channelsMax = 128

// channelTable is the channels of a connection, whose mu guards it.
type channelTable struct {
	all     []*channel
	byTopic map[string]*channel
	lessons int // of the limit, when it was last looked at
	// freed is closed, and replaced, when a channel has become free and isAwaited.
	freed     chan struct{}
	isAwaited bool
}

func newChannelTable() channelTable {
	return channelTable{byTopic: map[string]*channel{}, freed: make(chan struct{})}
}

// channelFor returns the channel of a topic, which is the caller's until it calls
// leave. If all are in use for other topics it returns none, but what is
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

// unused returns a channel that is free, nil if there is none.
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
	c.endRetired(channel)
	if c.channels.isAwaited {
		c.channels.isAwaited = false
		close(c.channels.freed)
		c.channels.freed = make(chan struct{})
	}
}

// channelsMax leaves ids for channels that are being closed, if the broker
// allows only a few, and is the connection's share of what our user may have.
func (c *connection) channelsMax() int {
	most := max(1, min(channelsMax, int(c.amqp.Config.ChannelMax)/2))
	if share, isLimited := c.limit.share(c.number); isLimited {
		return min(most, share)
	}
	return most
}

// fit gives back the channels that are beyond the connection's share since the limit
// is known, each as soon as it is not used any more.
func (c *connection) fit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	lessons := c.limit.lesson()
	if c.channels.lessons == lessons {
		return
	}
	c.channels.lessons = lessons
	keep := min(len(c.channels.all), c.channelsMax())
	beyond := slices.Clone(c.channels.all[keep:])
	c.channels.all = slices.Delete(c.channels.all, keep, len(c.channels.all))
	for _, channel := range beyond {
		delete(c.channels.byTopic, channel.topic)
		channel.isRetired = true
		c.endRetired(channel)
	}
}

// endRetired ends a channel that is beyond the connection's share, once it is free. c.mu is held.
func (c *connection) endRetired(channel *channel) {
	if channel.isRetired && channel.users.Load() == 0 {
		channel.end()
	}
}
