package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	soft := func(code int) error { return &amqp.Error{Code: code, Server: true, Recover: true} }
	hard := func(code int) error { return &amqp.Error{Code: code, Server: true} }
	local := func(code int) error { return &amqp.Error{Code: code} }
	stages := [...]stage{notHanded, handed, alone}
	for _, c := range []struct {
		name string
		err  error
		want [3]string // by stage
	}{
		{"closed sink", errClosed, [3]string{"unavailable closed whole", "unknown closed whole", "unknown closed whole"}},
		{"blocked", errBlocked, [3]string{"unavailable broker whole", "unknown broker whole", "unknown broker whole"}},
		{"not connected", errNotConnected, [3]string{"unavailable connection whole", "unknown connection whole", "unknown connection whole"}},
		{"silent", errSilent, [3]string{"unavailable timeout", "unknown timeout", "unknown timeout"}},
		{"timeout", context.DeadlineExceeded, [3]string{"unavailable timeout", "unknown timeout", "unknown timeout"}},
		{"cancelled", context.Canceled, [3]string{"unavailable timeout", "unknown timeout", "unknown timeout"}},
		{"connection", io.EOF, [3]string{"unavailable connection whole", "unknown connection whole", "unknown connection whole"}},
		{"lost", fmt.Errorf("%w: %w", errLost, local(amqp.FrameError)), [3]string{"unavailable connection whole", "unknown connection whole", "unknown connection whole"}},
		{"login", &loginError{errors.New("no file")}, [3]string{"unavailable auth whole", "unknown auth whole", "unknown auth whole"}},
		{"credentials", amqp.ErrCredentials, [3]string{"unavailable auth whole", "unknown auth whole", "unknown auth whole"}},
		{"mechanism", amqp.ErrSASL, [3]string{"unavailable auth whole", "unknown auth whole", "unknown auth whole"}},
		{"virtual host", hard(amqp.NotAllowed), [3]string{"unavailable auth whole", "unknown auth whole", "unknown auth whole"}},
		{"shutdown", hard(amqp.ConnectionForced), [3]string{"unavailable connection whole", "unknown connection whole", "unknown connection whole"}},
		{"internal error", hard(amqp.InternalError), [3]string{"unavailable broker whole", "unknown broker whole", "unknown broker whole"}},
		{"no exchange", soft(amqp.NotFound), [3]string{"unavailable topic_missing", "unknown topic_missing", "unavailable topic_missing"}},
		{"no permission", soft(amqp.AccessRefused), [3]string{"unavailable auth", "unknown auth", "unavailable auth"}},
		{"too large", soft(amqp.PreconditionFailed), [3]string{"unavailable too_large", "unknown too_large", "permanent too_large"}},
		{"content too large", soft(amqp.ContentTooLarge), [3]string{"unavailable too_large", "unknown too_large", "permanent too_large"}},
		{"locked", soft(amqp.ResourceLocked), [3]string{"unavailable refused", "unknown refused", "retryable refused"}},
		{"nack", errNacked, [3]string{"unavailable refused of_route", "unknown refused of_route", "unknown refused of_route"}},
		{"returned", fmt.Errorf("%w: 312", errUnroutable), [3]string{"unavailable unroutable", "unavailable unroutable", "unavailable unroutable"}},
		{"twin", errTwin, [3]string{"unavailable unroutable", "unknown unroutable", "unknown unroutable"}},
	} {
		for i, s := range stages {
			for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err)} {
				got := classify(s, err)
				told := got.Class.String() + " " + string(got.Reason)
				if got.Whole {
					told += " whole"
				}
				if got.OfRoute {
					told += " of_route"
				}
				require.Equal(t, c.want[i], told, "%s at stage %d", c.name, s)
				require.ErrorIs(t, got.Err, c.err)
			}
		}
	}
	require.NotEqual(t, sinks.Acknowledged, classify(alone, errors.New("unheard of")).Class)
}
