package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	reset := &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	cases := []struct {
		err    error
		class  sinks.Class
		reason sinks.Reason
	}{
		{kafka.UnknownTopicOrPartition, sinks.Unknown, sinks.ReasonTopicMissing},
		{kafka.LeaderNotAvailable, sinks.Unknown, sinks.ReasonBroker},
		{kafka.NotLeaderForPartition, sinks.Unknown, sinks.ReasonBroker},
		{kafka.RequestTimedOut, sinks.Unknown, sinks.ReasonTimeout},
		{kafka.BrokerNotAvailable, sinks.Unknown, sinks.ReasonBroker},
		{kafka.ReplicaNotAvailable, sinks.Unknown, sinks.ReasonBroker},
		{kafka.MessageSizeTooLarge, sinks.Permanent, sinks.ReasonTooLarge},
		{kafka.InvalidTopic, sinks.Permanent, sinks.ReasonInvalid},
		{kafka.RecordListTooLarge, sinks.Permanent, sinks.ReasonTooLarge},
		{kafka.NotEnoughReplicas, sinks.Unavailable, sinks.ReasonBroker},
		{kafka.NotEnoughReplicasAfterAppend, sinks.Unknown, sinks.ReasonBroker},
		{kafka.TopicAuthorizationFailed, sinks.Unavailable, sinks.ReasonAuth},
		{kafka.ThrottlingQuotaExceeded, sinks.Unknown, sinks.ReasonThrottled},
		{kafka.PolicyViolation, sinks.Retryable, sinks.ReasonRefused},
		{kafka.InvalidTimestamp, sinks.Retryable, sinks.ReasonRefused},
		{kafka.ClusterAuthorizationFailed, sinks.Unavailable, sinks.ReasonAuth},
		{kafka.SASLAuthenticationFailed, sinks.Unavailable, sinks.ReasonAuth},
		{kafka.UnsupportedVersion, sinks.Unavailable, sinks.ReasonBroker},
		{kafka.KafkaStorageError, sinks.Unknown, sinks.ReasonBroker},
		{kafka.InvalidRecord, sinks.Permanent, sinks.ReasonInvalid},
		{kafka.Unknown, sinks.Unknown, sinks.ReasonBroker},
		{kafka.Error(9999), sinks.Unknown, sinks.ReasonBroker},
		{fmt.Errorf("%w: text", kafka.MessageSizeTooLarge), sinks.Permanent, sinks.ReasonTooLarge},

		{io.ErrUnexpectedEOF, sinks.Unknown, sinks.ReasonConnection},
		{reset, sinks.Unknown, sinks.ReasonConnection},
		{context.DeadlineExceeded, sinks.Unknown, sinks.ReasonTimeout},
		{os.ErrDeadlineExceeded, sinks.Unknown, sinks.ReasonTimeout},
		{errors.New("anything"), sinks.Unknown, sinks.ReasonConnection},

		{&notStoredError{refused}, sinks.Unavailable, sinks.ReasonConnection},
		{&notStoredError{context.DeadlineExceeded}, sinks.Unavailable, sinks.ReasonTimeout},
		{&notStoredError{kafka.Unknown}, sinks.Unavailable, sinks.ReasonBroker},
		{&notStoredError{kafka.LeaderNotAvailable}, sinks.Unavailable, sinks.ReasonBroker},
		{&notStoredError{kafka.NotLeaderForPartition}, sinks.Unavailable, sinks.ReasonBroker},
		{&notStoredError{kafka.ThrottlingQuotaExceeded}, sinks.Unavailable, sinks.ReasonThrottled},
		{&notStoredError{kafka.UnknownTopicOrPartition}, sinks.Unavailable, sinks.ReasonTopicMissing},
		{&notStoredError{asLoginError(kafka.SASLAuthenticationFailed)}, sinks.Unavailable, sinks.ReasonAuth},
		{&notStoredError{asLoginError(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})}, sinks.Unavailable, sinks.ReasonAuth},
		{&notStoredError{asLoginError(&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")})}, sinks.Unavailable, sinks.ReasonAuth},
		{&notStoredError{asLoginError(reset)}, sinks.Unavailable, sinks.ReasonConnection},
		{&notStoredError{asLoginError(io.EOF)}, sinks.Unavailable, sinks.ReasonConnection},
		{errors.Join(&notStoredError{refused}, &notStoredError{&loginError{io.EOF}}), sinks.Unavailable, sinks.ReasonAuth},
	}
	for _, c := range cases {
		outcome := classify(c.err)
		require.Equal(t, c.class, outcome.Class, "%v", c.err)
		require.Equal(t, c.reason, outcome.Reason, "%v", c.err)
		require.ErrorIs(t, outcome.Err, c.err)
	}
}
