package rates

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// queriesOfOwners are those of docs/queues.md, in its order.
func queriesOfOwners(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/queues.md")
	require.NoError(t, err)
	for i, block := range strings.Split(string(page), "```") {
		if i%2 == 1 && strings.Contains(block, "delaybridge_queue_info") {
			lines := strings.Split(strings.TrimSpace(block), "\n")
			return lines[1:] // The first one is the language.
		}
	}
	require.Fail(t, "docs/queues.md has no queries")
	return nil
}

// byOwner are the values that an expression has now; the owner of queues that have none is empty.
func (s *series) byOwner(expr string) map[string]float64 {
	s.t.Helper()
	query, err := s.engine.NewInstantQuery(s.t.Context(), s, nil, expr, s.now)
	require.NoError(s.t, err, expr)
	defer query.Close()
	vector, err := query.Exec(s.t.Context()).Vector()
	require.NoError(s.t, err, expr)
	values := map[string]float64{}
	for _, one := range vector {
		owner := one.Metric.Get("owner")
		require.NotContains(s.t, values, owner, expr)
		values[owner] = one.F
	}
	return values
}

// TestOwners: the queries of docs/queues.md give what each owner has, with two bridges, of which each tells of each queue.
func TestOwners(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4, func(f *fleet) {
		f.keys = ", owner: shop, budget: {bytes: 1MiB}"
		f.isDeclared = true
	})
	f.start("a")
	f.start("b")
	f.held("a", "b")
	f.ready("a")
	f.ready("b")
	f.declare("carts", `{"sink": "events", "shards": 2, "owner": "ann"}`, 2)
	f.declare("free", `{"sink": "events", "shards": 2}`, 2)
	f.scrapes(2)
	f.traffic(40, 0, 0)
	f.pause("")
	f.one(ago(time.Hour))
	for _, name := range []string{"carts", "free"} {
		client, err := delay.NewClient(f.rdb, name, delay.WithPrefix(f.prefix))
		require.NoError(t, err)
		for range 3 {
			_, err := client.Schedule(t.Context(), delay.Message{ID: testenv.Name(t, "m"), Topic: f.topic}, delay.After(time.Hour))
			require.NoError(t, err)
		}
	}
	f.shows("delaybridge_oldest_due_age_seconds", atLeast(3600))
	f.shows("delaybridge_used_bytes", atLeast(270))
	f.scrapes(2)
	for range 24 { // The average of a month has a point each five minutes.
		f.scrape(f.addresses)
	}

	queries := queriesOfOwners(t)
	require.Len(t, queries, 5)
	late := f.byOwner(queries[0])
	require.Len(t, late, 1)
	assert.Greater(t, late["shop"], 3600.0)
	assert.Equal(t, map[string]float64{"shop": 1, "ann": 3, "": 3}, f.byOwner(queries[1]))
	published := f.byOwner(queries[2])
	assert.InDelta(t, 40, published["shop"], 1)
	assert.Equal(t, []float64{0, 0}, []float64{published["ann"], published[""]})
	scheduled := f.byOwner(queries[3])
	assert.Positive(t, scheduled["shop"])
	assert.Greater(t, scheduled["shop"], scheduled["ann"])
	assert.InDelta(t, scheduled["ann"], scheduled[""], 1e-9)
	bill := f.byOwner(queries[4])
	require.Len(t, bill, 1, "the others have no budget")
	assert.Positive(t, bill["shop"])
	assert.Less(t, bill["shop"], 3.5/1024, "3.5 for a GiB, and the budget is a MiB")
}
