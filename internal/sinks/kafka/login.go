package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// mechanisms makes a mechanism of a user name and a password; of oauthbearer the
// password is the token.
var mechanisms = map[string]func(username, password string) (sasl.Mechanism, error){
	"plain": func(username, password string) (sasl.Mechanism, error) {
		return plain.Mechanism{Username: username, Password: password}, nil
	},
	"scram-sha-256": func(username, password string) (sasl.Mechanism, error) {
		return scram.Mechanism(scram.SHA256, username, password)
	},
	"scram-sha-512": func(username, password string) (sasl.Mechanism, error) {
		return scram.Mechanism(scram.SHA512, username, password)
	},
	oauthBearer: func(_, token string) (sasl.Mechanism, error) { return bearer{token}, nil },
}

// mechanism is the login with the password or the token as they are now.
func (s *SASL) mechanism() (sasl.Mechanism, error) {
	proof := s.Password
	if s.Mechanism == oauthBearer {
		proof = s.Token
	}
	text, err := proof.Reveal()
	if err != nil {
		return nil, err
	}
	made, err := mechanisms[s.Mechanism](s.Username, text)
	if err != nil {
		return nil, fmt.Errorf("prepare login: %w", err)
	}
	return made, nil
}

// login authenticates a new connection. It returns when the broker will want
// a new login; zero means never.
func (s *SASL) login(ctx context.Context, conn *protocol.Conn) (time.Time, error) {
	mechanism, err := s.mechanism()
	if err != nil {
		return time.Time{}, err
	}
	answer, err := conn.RoundTrip(&saslhandshake.Request{Mechanism: mechanism.Name()})
	if err != nil {
		return time.Time{}, err
	}
	if handshake, ok := answer.(*saslhandshake.Response); ok && handshake.ErrorCode != 0 {
		return time.Time{}, kafka.Error(handshake.ErrorCode)
	}
	session, state, err := mechanism.Start(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return converse(ctx, conn, session, state)
}

// converse answers the broker's challenges until both sides are content.
func converse(ctx context.Context, conn *protocol.Conn, session sasl.StateMachine, state []byte) (time.Time, error) {
	var lifetime time.Duration
	for {
		answer, err := conn.RoundTrip(&saslauthenticate.Request{AuthBytes: state})
		if err != nil {
			return time.Time{}, err
		}
		response, ok := answer.(*saslauthenticate.Response)
		if !ok {
			return time.Time{}, fmt.Errorf("login: unexpected answer %T", answer)
		}
		if response.ErrorCode != 0 {
			return time.Time{}, kafka.Error(response.ErrorCode)
		}
		lifetime = time.Duration(response.SessionLifetimeMs) * time.Millisecond
		var done bool
		if done, state, err = session.Next(ctx, response.AuthBytes); err != nil {
			return time.Time{}, err
		} else if done {
			return sessionEnd(lifetime), nil
		}
	}
}

// sessionEnd leaves a tenth of the session unused: the broker cuts a connection
// whose session has ended, and a request on it would have an unknown outcome.
// kafka-go cannot renew a login on a live connection.
func sessionEnd(lifetime time.Duration) time.Time {
	if lifetime <= 0 {
		return time.Time{}
	}
	return time.Now().Add(lifetime * 9 / 10)
}
