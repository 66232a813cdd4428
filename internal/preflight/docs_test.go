package preflight_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCodesAreInTheHandbook: whoever makes a finding says in docs/check.md what it is.
func TestCodesAreInTheHandbook(t *testing.T) {
	t.Parallel()
	inCode := regexp.MustCompile(`"((?:redis|sentinel|queue|kafka|nats|rabbitmq|pubsub|sqs|webhook|outbox|admin|sink|inlet|issuer|clock|file|tls)_[a-z_]+)"|Code: +"([a-z_]+)"`)
	inDocs := regexp.MustCompile("`((?:redis|sentinel|queue|kafka|nats|rabbitmq|pubsub|sqs|webhook|outbox|admin|sink|inlet|issuer|clock|file|tls)_[a-z_]+|certificate|late|timeouts)`")
	known := map[string]bool{"sentinel_unreachable": true, "sentinel_tls": true} // Made of Redis' codes.
	for _, pattern := range []string{
		"*.go", "../check/*.go", "../fit/*.go", "../outbox/table/fitness.go", "../sinks/*/check*.go", "../sinks/rabbitmq/manage*.go",
	} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, match := range inCode.FindAllSubmatch(text, -1) {
				known[string(match[1])+string(match[2])] = true
			}
		}
	}
	delete(known, "redis_") // A prefix, and no code.
	text, err := os.ReadFile("../../docs/check.md")
	require.NoError(t, err)
	documented := map[string]bool{}
	for _, match := range inDocs.FindAllSubmatch(text, -1) {
		documented[string(match[1])] = true
	}
	delete(documented, "sync_interval")
	assert.Equal(t, slices.Sorted(maps.Keys(known)), slices.Sorted(maps.Keys(documented)))
}
