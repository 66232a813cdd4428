package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// reply is an error as a server sends it.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestClassify(t *testing.T) {
	t.Parallel()
	const route, whole, sent, unsent = false, true, true, false
	late := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	reset := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	for _, c := range []struct {
		err    error
		sent   bool
		class  sinks.Class
		reason sinks.Reason
		whole  bool
	}{
		{goredis.Nil, sent, sinks.Unavailable, sinks.ReasonTopicMissing, route},
		{reply("WRONGTYPE Operation against a key"), sent, sinks.Unavailable, sinks.ReasonRefused, route},
		{reply("NOPERM this user has no permissions"), sent, sinks.Unavailable, sinks.ReasonAuth, route},
		{reply("NOAUTH Authentication required."), sent, sinks.Unavailable, sinks.ReasonAuth, whole},
		{reply("WRONGPASS invalid username-password pair"), unsent, sinks.Unavailable, sinks.ReasonAuth, whole},
		{fmt.Errorf("initialize: %w", reply("WRONGPASS invalid")), unsent, sinks.Unavailable, sinks.ReasonAuth, whole},
		{reply("OOM command not allowed when used memory > 'maxmemory'."), sent, sinks.Unavailable, sinks.ReasonFull, whole},
		{reply("READONLY You can't write against a read only replica."), sent, sinks.Unavailable, sinks.ReasonBroker, whole},
		{reply("LOADING Redis is loading the dataset in memory"), sent, sinks.Unavailable, sinks.ReasonBroker, whole},
		{reply("BUSY Redis is busy running a script."), sent, sinks.Unavailable, sinks.ReasonBroker, whole},
		{reply("MASTERDOWN Link with MASTER is down"), sent, sinks.Unavailable, sinks.ReasonBroker, whole},
		{reply("MISCONF Redis is configured to save RDB snapshots"), sent, sinks.Unavailable, sinks.ReasonBroker, whole},
		{reply("NOREPLICAS Not enough good replicas to write."), sent, sinks.Unavailable, sinks.ReasonBroker, whole},
		{reply("CLUSTERDOWN Hash slot not served"), sent, sinks.Unavailable, sinks.ReasonBroker, route},
		{reply("TRYAGAIN Multiple keys request during rehashing"), sent, sinks.Unavailable, sinks.ReasonBroker, route},
		{reply("MOVED 3999 127.0.0.1:6381"), sent, sinks.Unavailable, sinks.ReasonBroker, route},
		{reply("ASK 3999 127.0.0.1:6381"), sent, sinks.Unavailable, sinks.ReasonBroker, route},
		{reply("ERR upstream failure"), sent, sinks.Unknown, sinks.ReasonRefused, route},
		{reply("ERR max number of clients reached"), unsent, sinks.Unavailable, sinks.ReasonConnection, whole},
		{errNoAnswer, sent, sinks.Unknown, sinks.ReasonConnection, whole},
		{late, sent, sinks.Unknown, sinks.ReasonTimeout, whole},
		{late, unsent, sinks.Unavailable, sinks.ReasonTimeout, whole},
		{reset, sent, sinks.Unknown, sinks.ReasonConnection, whole},
		{io.EOF, sent, sinks.Unknown, sinks.ReasonConnection, whole},
		{context.DeadlineExceeded, sent, sinks.Unknown, sinks.ReasonTimeout, whole},
		{goredis.ErrPoolTimeout, unsent, sinks.Unavailable, sinks.ReasonTimeout, whole},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, unsent, sinks.Unavailable, sinks.ReasonConnection, whole},
		{&tooLargeError{2, 1}, unsent, sinks.Permanent, sinks.ReasonTooLarge, route},
		{&message.InvalidError{Field: "topic"}, unsent, sinks.Permanent, sinks.ReasonInvalid, route},
		{errors.New("other"), sent, sinks.Unknown, sinks.ReasonConnection, whole},
	} {
		for _, isCluster := range []bool{false, true} {
			s := &Sink{root: context.Background(), isCluster: isCluster}
			outcome := s.classify(c.err, c.sent)
			assert.Equal(t, fmt.Sprint(c.class, c.reason, c.whole && !isCluster), fmt.Sprint(outcome.Class, outcome.Reason, outcome.Whole), "%v", c.err)
			assert.Error(t, outcome.Err)
		}
	}
}

// A pipeline whose connection fails tells its error to all commands, also to those that were answered.
func TestAnAnswerCountsThoughTheConnectionFailsAfterIt(t *testing.T) {
	t.Parallel()
	f := &flight{sink: &Sink{root: context.Background()}}
	f.state.Store(inTheAir)
	for _, id := range []string{"1-0", ""} {
		command := xadd{goredis.NewStringCmd(t.Context())}
		command.SetVal(id)
		command.SetErr(io.EOF)
		f.commands = append(f.commands, command)
	}
	outcomes, failure := f.outcomes()
	require.ErrorIs(t, failure, io.EOF)
	require.Equal(t, sinks.Acknowledged, outcomes[0].Class)
	require.Equal(t, "entry 1-0", outcomes[0].Place.String())
	require.Equal(t, sinks.Unknown, outcomes[1].Class)
}
