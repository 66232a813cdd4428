package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"

	"github.com/segmentio/kafka-go/protocol"
)

// muter keeps the answers to what is published to some topics, as a partition
// does whose replicas hang: one broker alone cannot be made to hang by parts.
type muter struct {
	mu     sync.Mutex
	topics []string
}

func (m *muter) add(topic string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.topics = append(m.topics, topic)
}

func (m *muter) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &mutedConn{Conn: conn, mute: m}, nil
}

// mutedConn swallows all answers once a request for a muted topic has begun.
type mutedConn struct {
	net.Conn
	mute  *muter
	muted bool
}

// Write implements [net.Conn].
func (c *mutedConn) Write(b []byte) (int, error) {
	const size, api = 4, 2 // bytes, in which a request begins
	produces := len(b) > size+api && binary.BigEndian.Uint16(b[size:]) == uint16(protocol.Produce)
	c.mute.mu.Lock()
	c.muted = c.muted || produces && slices.ContainsFunc(c.mute.topics, func(topic string) bool { return bytes.Contains(b, []byte(topic)) })
	c.mute.mu.Unlock()
	return c.Conn.Write(b)
}

// Read implements [net.Conn].
func (c *mutedConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if !c.muted || err != nil {
			return n, err
		}
	}
}
