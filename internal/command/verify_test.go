package command

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	f := setupWith(t, 1, "nats://127.0.0.1:1", "")
	run := func(args ...string) outcome {
		return bridge(t, "", append([]string{"verify", "--config", f.file}, args...)...)
	}
	o := run()
	require.Equal(t, exitDone, o.code, "nobody has used it: %+v", o)

	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "whole", "x")
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "lost", "--key", "k", "x")
	o = run("orders")
	assert.Equal(t, exitDone, o.code)
	assert.Contains(t, o.stderr, "looked at 4 entries, all whole")

	shard := f.queue.Keys().Shard(0)
	require.NoError(t, f.rdb.ZRem(t.Context(), shard.Due, "k\x00lost").Err())
	o = run("orders", "-o", "json")
	assert.Equal(t, exitRefused, o.code)
	assert.Equal(t, map[string]any{"queue": "orders", "shard": 0.0, "what": "nowhere", "id": "lost", "key": "k", "mended": false}, o.object(t))
	code, _ := o.errorOf(t)
	assert.Equal(t, "not_whole", code)

	o = run("--repair")
	assert.Equal(t, exitDone, o.code, "%+v", o)
	assert.Regexp(t, `(?m)^orders +0 +nowhere +lost +k +yes`, o.stdout)
	assert.Contains(t, o.stderr, "1 thing not whole, 1 of them mended")
	log, err := inspect.NewAdmin(f.queue).AuditLog(t.Context(), "", 1)
	require.NoError(t, err)
	assert.Equal(t, "found 1, mended 1", log[0].Answer)
	assert.Equal(t, exitDone, run().code)
	assert.Contains(t, f.ok("dead list").stdout, "lost")
	assert.Equal(t, exitUsage, run("oders").code)
}
