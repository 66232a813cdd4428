package message

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTopics(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, topic string
		takes          bool
	}{
		{"orders", "orders", true},
		{"orders", "orders.eu", false},
		{"orders.*", "orders.eu.timeout", true},
		{"orders.*", "orders.", true},
		{"orders.*", "orders", false},
		{"*.timeout", "orders.timeout", true},
		{"*.timeout", "orders.timeout.x", false},
		{"a*b*c", "abc", true},
		{"a*b*c", "a-b-b-c-c", true},
		{"a*b*c", "acb", false},
		{"a*a", "a", false},
		{"*", "anything", true},
		{"**", "", true},
	} {
		err := Topics{"other", c.pattern}.Check(c.topic)
		assert.Equal(t, c.takes, err == nil, "%+v", c)
	}
	require.NoError(t, Topics(nil).Check("anything"))
	err := Topics{"orders.*", "bills"}.Check("reminder")
	var invalid *InvalidError
	require.ErrorAs(t, err, &invalid)
	assert.Equal(t, "topic", invalid.Field)
	assert.EqualError(t, err, `topic "reminder": the queue takes only orders.*, bills`)
}
