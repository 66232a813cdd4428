package config_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/config"
)

func TestDidYouMean(t *testing.T) {
	t.Parallel()
	known := []string{"orders", "reminders", "x"}
	for name, want := range map[string]string{
		"oders": "orders", "ordres": "orders", "Orders": "orders", "order": "orders", "remindrs": "reminders", "orders-eu": "orders",
		"payments": "", "y": "x", "": "x",
	} {
		if want != "" {
			want = ", did you mean " + want + "?"
		}
		assert.Equal(t, want, config.DidYouMean(name, known), name)
	}
	assert.Empty(t, config.DidYouMean("orders", nil))
}
