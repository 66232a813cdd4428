package rabbitmq

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// opened is the answer to opening a channel at the broker.
type opened struct {
	channel *openChannel
	err     error
}

// openChannel is an AMQP channel in confirm mode.
type openChannel struct {
	amqp    *amqp.Channel
	closes  chan *amqp.Error // from the driver: the cause, then closed
	returns chan amqp.Return // read all the time, since the driver's reader waits
}

// notices are what the driver tells of the channel; nil where none is open.
func (o *openChannel) notices() (<-chan *amqp.Error, <-chan amqp.Return) {
	if o == nil {
		return nil, nil
	}
	return o.closes, o.returns
}

// openChannel has a channel opened, which ends with the connection at the latest.
func (c *connection) openChannel() chan opened {
	answer := make(chan opened, 1)
	open := func() {
		channel, err := c.amqp.Channel()
		if err != nil {
			answer <- opened{err: fmt.Errorf("open channel: %w", err)}
			return
		}
		o := &openChannel{
			amqp:    channel,
			closes:  channel.NotifyClose(make(chan *amqp.Error, 1)),
			returns: channel.NotifyReturn(make(chan amqp.Return, 16)),
		}
		if err := channel.Confirm(false); err != nil {
			answer <- opened{err: fmt.Errorf("ask for confirmations: %w", err)}
			return
		}
		answer <- opened{channel: o}
	}
	if !c.spawn(open) {
		answer <- opened{err: errLost}
	}
	return answer
}

// closeChannel closes a channel without waiting for the broker's answer, which
// comes, or the connection ends.
func (c *connection) closeChannel(o *openChannel) {
	c.spawn(func() { _ = o.amqp.Close() })
	if o.returns == nil {
		return
	}
	c.spawn(func() {
		for range o.returns { // Else the driver's reader would wait for us.
			continue
		}
	})
}
