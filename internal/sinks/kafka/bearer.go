package kafka

import (
	"context"
	"errors"
	"strings"

	"github.com/segmentio/kafka-go/sasl"
)

// oauthBearer is the login by a token (RFC 7628). It is how Kafka of the clouds takes
// their identities: the agent that renews the token writes it into a file.
const oauthBearer = "oauthbearer"

// bearer is the mechanism OAUTHBEARER, which kafka-go does not have.
type bearer struct{ token string }

var (
	_ sasl.Mechanism    = bearer{}
	_ sasl.StateMachine = bearer{}

	errNoToken = errors.New("the token is empty, or has characters that no token has")
)

// Name implements [sasl.Mechanism].
func (bearer) Name() string { return "OAUTHBEARER" }

// Start implements [sasl.Mechanism].
func (b bearer) Start(context.Context) (sasl.StateMachine, []byte, error) {
	if b.token == "" || strings.ContainsAny(b.token, " \t\r\n\x00\x01") {
		return nil, nil, errNoToken
	}
	return b, []byte("n,,\x01auth=Bearer " + b.token + "\x01\x01"), nil
}

// Next implements [sasl.StateMachine]. A broker that refuses the token first says why,
// and sends the error after we have acknowledged that.
func (bearer) Next(_ context.Context, challenge []byte) (done bool, response []byte, err error) {
	if len(challenge) == 0 {
		return true, nil, nil
	}
	return false, []byte{1}, nil
}
