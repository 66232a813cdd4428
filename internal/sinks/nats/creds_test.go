package nats_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/nats"
)

// pair makes a key pair and its public half.
func pair(t *testing.T, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
	t.Helper()
	keys, err := create()
	require.NoError(t, err)
	public, err := keys.PublicKey()
	require.NoError(t, err)
	return keys, public
}

// TestCredentials logs in where an operator, by signed tokens, says who may.
func TestCredentials(t *testing.T) {
	t.Parallel()
	operator, operatorID := pair(t, nkeys.CreateOperator)
	account, accountID := pair(t, nkeys.CreateAccount)
	_, systemID := pair(t, nkeys.CreateAccount)
	holder, holderID := pair(t, nkeys.CreateUser)

	operatorToken, err := jwt.NewOperatorClaims(operatorID).Encode(operator)
	require.NoError(t, err)
	accountClaims := jwt.NewAccountClaims(accountID)
	accountClaims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: 1 << 20, Streams: 1}
	accountToken, err := accountClaims.Encode(operator)
	require.NoError(t, err)
	systemToken, err := jwt.NewAccountClaims(systemID).Encode(operator)
	require.NoError(t, err)
	holderToken, err := jwt.NewUserClaims(holderID).Encode(account)
	require.NoError(t, err)
	seed, err := holder.Seed()
	require.NoError(t, err)
	credentials, err := jwt.FormatUserConfig(holderToken, seed)
	require.NoError(t, err)

	server := testenv.StartNATS(t, fmt.Sprintf(`operator: %s
		system_account: %s
		resolver: MEMORY
		resolver_preload: {%s: %s, %s: %s}`, operatorToken, systemID, systemID, systemToken, accountID, accountToken))
	file := filepath.Join(t.TempDir(), "bridge.creds")
	sink := newSink(t, nats.Config{URL: server.URL(), CredsFile: file})
	requireOutcome(t, publish(t, sink, newMessage(t, "x"))[0], sinks.Unavailable, sinks.ReasonAuth)
	require.NoError(t, os.WriteFile(file, credentials, 0o600))
	require.NoError(t, sink.Ping(t.Context()), "the file is read again at each connect")
}
