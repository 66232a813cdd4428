package command

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// TestUsageByOwner: a line for the sum of each owner and for each queue, with prices on demand; what Redis does not tell is neither 0 nor summed up.
func TestUsageByOwner(t *testing.T) {
	t.Parallel()
	f := setup(t)
	text, err := os.ReadFile(f.file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(f.file, []byte(strings.Replace(string(text), "max_message: 1KiB", "max_message: 1KiB, owner: \"ann\\e\"", 1)), 0o600))
	usage := func(args ...string) outcome {
		return bridge(t, "", append([]string{"usage", "--config", f.file}, args...)...)
	}
	f.bury("dead")
	f.ok("schedule", "--topic", "t", "--in", "0s", "--id", "first", "x")
	f.settle(f.claim(), message.Verdict{Verb: message.VerbAck})
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "later", strings.Repeat("x", 500))

	o := usage("--per-gib", "1048576", "--per-million", "2000000")
	require.Equal(t, exitDone, o.code, "%+v", o)
	assert.Regexp(t, `(?m)^OWNER +QUEUE +WAITING +IN FLIGHT +DEAD +BYTES +% +SCHEDULED +PUBLISHED +% +PRICE OF BYTES +PRICE OF PUBLISHED$`, o.stdout)
	assert.Regexp(t, `(?m)^"ann\\x1b" +1 queue +1 +0 +1 +1\.\d KiB +100\.0 +3 +1 +100\.0 +1\.\d\d +2\.00$`, o.stdout)
	assert.Regexp(t, `(?m)^ +orders +1 +0 +1 +1\.\d KiB +3 +1 +1\.\d\d +2\.00$`, o.stdout)
	assert.Regexp(t, `(?m)^no owner +1 queue +0 +0 +0 +0 B +0\.0 +0 +0 +0\.0 +0\.00 +0\.00$`, o.stdout, "no bridge has made it")
	assert.Regexp(t, `(?m)^all +2 queues +1 +0 +1 `, o.stdout)
	assert.Regexp(t, `(?m)^ +orders .* 20\d\d-.*Z$`, usage("-o", "wide").stdout)

	for flag, args := range map[string]string{"--per-gib: -1 is no price": "--per-gib=-1", "--per-million: NaN is no price": "--per-million=NaN", "--per-gib adds a column": "--per-gib=1 -o json"} {
		o := usage(strings.Fields(args)...)
		assert.Equal(t, exitUsage, o.code)
		assert.Contains(t, o.stderr, flag)
	}

	require.NoError(t, f.rdb.Set(t.Context(), f.queue.Keys().Shard(1).Dead, "x", 0).Err()) // It cannot be read.
	o = usage()
	assert.Equal(t, exitFailed, o.code)
	assert.Regexp(t, `(?m)^"ann\\x1b" +1 queue +- +- +- +- +- +- +- +-\s*$`, o.stdout)
	assert.Regexp(t, `(?m)^no owner +1 queue +0 +0 +0 +0 B +- +0 +0 +-\s*$`, o.stdout, "there is no part of what is not known")
	assert.Regexp(t, `(?m)^all +2 queues +- +- +- +- `, o.stdout)
	object := usage("orders", "-o", "json").object(t)
	queue := object["owners"].([]any)[0].(map[string]any)["queues"].([]any)[0].(map[string]any)
	assert.NotEmpty(t, queue["error"])
	assert.NotContains(t, queue, "waiting")
	assert.Empty(t, object["total"])
}
