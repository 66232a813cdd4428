package delay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
)

// TestJSONErrors name the topic, and not the body.
func TestJSONErrors(t *testing.T) {
	t.Parallel()
	const topic = delay.JSON[any]("order.timeout")
	m, err := topic.Message("a", func() {})
	require.ErrorContains(t, err, "encode body of order.timeout")
	require.Empty(t, m)
	_, err = topic.Decode([]byte(`"secret`))
	require.ErrorContains(t, err, "decode body of order.timeout")
	require.NotContains(t, err.Error(), "secret")
}
