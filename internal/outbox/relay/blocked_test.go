package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestManyBlocked: more rows wait for another message of their id than are told apart. A
// lane goes past them to the good one behind, and asks Redis once for each, whether
// its looks are slow or fast; then they rest.
func TestManyBlocked(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		for name, cheap := range map[string]time.Duration{"fast": time.Hour, "slow": time.Nanosecond} {
			t.Run(name, func(t *testing.T) {
				d.Exec(t, "DELETE FROM {t}")
				s := newScene(t, d)
				const rows, batch = mostBlocked + 300, 100
				for _, r := range s.InsertMany(rows, outboxtest.Past) {
					s.redis.live[r.Identity] = &fakeMessage{token: "another"}
				}
				d.Exec(t, "UPDATE {t} SET status = 0")
				good := s.Insert(insert{ID: "good", DueMs: s.Due(0)})
				s.config.cheapLook, s.config.Batch = cheap, batch
				l := s.relay().driver(0)
				rounds := 0
				for more := true; more && rounds < 3*rows/batch; rounds++ {
					var err error
					more, err = l.round(t)
					require.NoError(t, err)
				}
				require.Equal(t, table.StateStored.String(), s.State(good), fmt.Sprint("after ", rounds, " rounds"))
				require.Equal(t, rows+1, s.redis.asked)
				require.Less(t, rounds, rows/batch+3)
				require.Equal(t, rows, s.Count("status = 0"))
			})
		}
	})
}
