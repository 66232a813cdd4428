package command

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestUsage: of alternatives the usage shows that one is needed.
func TestUsage(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"schedule":   "Usage: bridge schedule --config=FILE --queue=QUEUE (--in=DURATION | --at=TIME | --batch=FILE) [<body>] [flags]",
		"reschedule": "Usage: bridge reschedule --config=FILE --queue=QUEUE (--in=DURATION | --at=TIME | --by=DURATION) [flags]",
		"get":        "Usage: bridge get --config=FILE --queue=QUEUE --id=ID [flags]",
	} {
		first, rest, _ := strings.Cut(bridge(t, "", command, "--help").stdout, "\n")
		assert.Equal(t, want, first)
		assert.True(t, strings.HasPrefix(rest, "\n"), "a line is left empty")
	}
}
