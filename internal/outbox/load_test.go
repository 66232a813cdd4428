package outbox

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const soon = time.Minute

func (s *scene) due(d time.Duration) int64 { return time.Now().Add(d).UnixMilli() }

func TestLoad(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		small := s.insert(insert{key: "k", id: "small", dueMs: s.due(soon), headers: `{"a": "b", "é": ""}`, body: "hello\x00\xff"})
		_ = small
		s.start()
		good := s.insert(insert{key: "k", id: "good", dueMs: 1893456000123 - 1893456000000 + s.due(soon), headers: `{"a": "b"}`, body: "hello\x00\xff"})
		large := s.insert(insert{id: "large", dueMs: s.due(-soon), body: strings.Repeat("x", 900<<10)})
		far := s.insert(insert{id: "far", dueMs: s.due(2 * time.Hour)})
		s.requireGone(good)
		s.requireGone(large)
		require.Equal(t, "header \"é\": a name is printable ASCII without colon and space", s.requireState(small, stateRefused))
		m := s.redis.get(identity{"orders", "k", "good"})
		require.NotNil(t, m)
		require.Equal(t, "hello\x00\xff", string(m.message.Body))
		require.Equal(t, map[string]string{"a": "b"}, m.message.Headers)
		require.Equal(t, "topic", m.message.Topic)
		require.True(t, strings.HasPrefix(m.token, "~"))
		require.False(t, m.marked)
		require.Len(t, s.redis.get(identity{"orders", "", "large"}).message.Body, 900<<10)
		r, _ := s.read(far)
		require.Equal(t, statePending, r.state, "beyond the horizon")
	})
}
