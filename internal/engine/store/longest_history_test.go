package store_test

import (
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
)

// remembered has the queue keep a history, which is full of what is too old, of messages
// of the longest topic.
func remembered(before func(*crowd)) func(*crowd) {
	return func(c *crowd) {
		c.topic = strings.Repeat("t", 249)
		remember(c, c.q, layout.History{Count: 20_000, Age: never / 2})
		end := message.End{Kind: message.EndPublished, Topic: c.topic, Attempt: 1, Detail: buried.Reason}
		for n := 0; n < 20_000; n += store.MaxBatch {
			var ends []any
			var ended []redis.Z
			for i := range store.MaxBatch {
				id := fmt.Sprintf("e-%024d", n+i)
				ends, ended = append(ends, id, end.String()), append(ended, redisZ(id, c.due.Ms))
			}
			require.NoError(c, c.rdb.HSet(c.Context(), c.key("ends"), ends...).Err())
			require.NoError(c, c.rdb.ZAdd(c.Context(), c.key("ended"), ended...).Err())
		}
		before(c)
	}
}

// historyCalls are those that end messages which the queue remembers.
var historyCalls = []crowdCall{
	{"settle ack, history", remembered(claimed(message.Verdict{
		Verb: message.VerbAck, Published: true, Place: "stream ORDERS sequence 18446744073709551615",
	})), (*crowd).settle, true},
	{"settle ack, tagged, history", remembered(tagged(claimed(acked))), (*crowd).settle, true},
	{"settle dead letter, history", remembered(claimed(buriedMaybe)), (*crowd).settle, true},
	{"settle, all kinds, history", remembered((*crowd).manyKinds), (*crowd).settle, true},
	{"cancel, history", remembered((*crowd).rowsTried), func(c *crowd) {
		c.all(store.DoneMaybePublished, c.q.Producer().CancelThese(c.Context(), c.ids()...))
	}, true},
	{"cancel of dead ids, tagged, history", remembered(tagged((*crowd).rowsDead)), func(c *crowd) {
		c.all(store.DoneMaybePublished, c.q.Producer().CancelThese(c.Context(), c.ids()...))
	}, true},
	{"remove, history", remembered((*crowd).rowsTried), func(c *crowd) {
		n, err := c.q.Rows().Remove(c.Context(), c.ended())
		require.NoError(c, err)
		require.Equal(c, c.n, n)
	}, true},
	{"mend, history", remembered((*crowd).nobody), func(c *crowd) {
		remember(c, c.q, layout.History{Count: 1, Age: never})
		require.Equal(c, "many_ends", c.mended())
	}, false},
	{"get, history", remembered((*crowd).tried), func(c *crowd) { c.get(c.id(0)) }, true},
}
