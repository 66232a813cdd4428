package sizing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/sizing"
)

func of(t *testing.T, p sizing.Plan) *sizing.Sizes {
	t.Helper()
	s, err := sizing.Of(p)
	require.NoError(t, err)
	return s
}

// TestMoreTakesMore: nothing gets smaller where a plan asks for more, and what does not depend
// on it stays.
func TestMoreTakesMore(t *testing.T) {
	t.Parallel()
	least := sizing.Plan{Rate: 1000, Delay: 30 * time.Minute, Outage: time.Hour, Body: 256}
	before := of(t, least)
	assert.Equal(t, int64(1_800_000), before.Waiting)
	assert.Equal(t, int64(5_400_000), before.WaitingMost)
	assert.Less(t, before.Memory.UsedMost, before.Budget, "what a bridge counts is more than Redis takes")
	assert.LessOrEqual(t, before.Budget, before.Memory.Maxmemory)
	assert.Less(t, before.Memory.Maxmemory, before.Memory.Host)
	assert.Less(t, before.Memory.Host, before.Memory.HostWorst)

	for name, more := range map[string]func(*sizing.Plan){
		"body": func(p *sizing.Plan) { p.Body = 1024 }, "id": func(p *sizing.Plan) { p.ID = 100 }, "headers": func(p *sizing.Plan) { p.Headers = 300 },
	} {
		p := least
		more(&p)
		after := of(t, p)
		assert.Greater(t, after.Memory.Used, before.Memory.Used, name)
		if name != "id" { // A bridge counts a fixed number of bytes for ids and tables.
			assert.Greater(t, after.Budget, before.Budget, name)
		}
		assert.Greater(t, after.Disk.Most, before.Disk.Most, name)
		assert.Greater(t, after.Disk.PerSecond, before.Disk.PerSecond, name)
		assert.Equal(t, before.Waiting, after.Waiting, name)
		assert.Equal(t, before.CPU, after.CPU, name)
	}
	longer := least
	longer.Delay *= 10
	after := of(t, longer)
	assert.Equal(t, 10*before.Waiting, after.Waiting)
	assert.Equal(t, before.Disk.PerSecond, after.Disk.PerSecond)
	assert.Greater(t, after.Replica.Reload, before.Replica.Reload)
	assert.Greater(t, after.Disk.RewriteEvery, before.Disk.RewriteEvery)
}

// TestPeak: a peak needs processors, and beyond those of one Redis a Cluster and shards for it,
// but no memory.
func TestPeak(t *testing.T) {
	t.Parallel()
	p := sizing.Plan{Rate: 1000, Delay: time.Hour, Body: 256}
	before := of(t, p)
	p.Peak = 100_000
	after := of(t, p)
	assert.Equal(t, before.Waiting, after.Waiting)
	assert.Greater(t, after.CPU.Redis(), before.CPU.Redis())
	assert.Greater(t, after.CPU.Bridge, before.CPU.Bridge)
	assert.Equal(t, 1, before.Primaries)
	assert.Equal(t, 8, before.Shards)
	assert.Greater(t, after.Primaries, 1)
	assert.GreaterOrEqual(t, after.Shards, 4*after.Primaries)
}

// TestOutbox: rows keep what is due beyond the horizon, and what has ended.
func TestOutbox(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	p := sizing.Plan{Rate: 100, Delay: 30 * day, Body: 256, Outbox: &sizing.Outbox{Horizon: time.Hour, Keep: day}}
	s := of(t, p)
	assert.Equal(t, int64(100*3600), s.Waiting)
	assert.Equal(t, int64(100*31*24*3600), s.Outbox.Rows)
	assert.Positive(t, s.CPU.Database)
	p.Delay = time.Minute
	assert.Equal(t, int64(100*60), of(t, p).Waiting, "due within the horizon")
	p.Outbox = nil
	assert.Nil(t, of(t, p).Outbox)
}

// TestConstantsSayWhereTheyAreFrom: each is measured, and has a unit and a source.
func TestConstantsSayWhereTheyAreFrom(t *testing.T) {
	t.Parallel()
	for _, c := range sizing.Constants() {
		assert.Positive(t, c.Value, c.Name)
		assert.NotEmpty(t, c.Name)
		assert.NotEmpty(t, c.Unit, c.Name)
		assert.NotEmpty(t, c.Source, c.Name)
	}
}
