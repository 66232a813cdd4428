package telemetry

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestQueueTotals(t *testing.T) {
	t.Parallel()

	n := func(scheduled int64) map[string]int64 { return map[string]int64{"scheduled": scheduled} }
	var totals queueTotals
	take := func(life string, retired int64, told ...map[string]int64) any {
		sums := totals.take(QueueCounters{Life: life, Retired: n(retired), Shards: told})
		if sums == nil {
			return nil
		}
		return sums["scheduled"]
	}
	assert.Nil(t, take("a", 0, n(3), nil), "a part of it would be a false step later")
	assert.EqualValues(t, 7, take("a", 0, n(3), n(4)))
	assert.EqualValues(t, 8, take("a", 0, n(4), nil), "what that shard told last")
	assert.Nil(t, take("a", 0, nil, nil), "no value is better than an old one")
	assert.EqualValues(t, 9, take("a", 0, n(4), n(5), n(0)), "a third shard")
	assert.EqualValues(t, 9, take("a", 0, n(3), n(5), n(0)), "a failover has taken some back")
	assert.EqualValues(t, 10, take("a", 0, n(5), n(5), nil), "dropped since the layout was read")
	assert.EqualValues(t, 10, take("a", 5, n(5)), "retired")
	assert.EqualValues(t, 12, take("a", 5, n(7)))
	assert.EqualValues(t, 1, take("b", 0, n(1)), "a wipe: Prometheus sees a restart from 0")
}
