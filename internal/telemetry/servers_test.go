package telemetry

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestServers: of Redis and of the API's calls is told what is known, and no more.
func TestServers(t *testing.T) {
	t.Parallel()
	m, isUp := New(""), true
	m.RegisterRedis(func() bool { return isUp })
	const used, limit = `delaybridge_redis_memory_used_bytes{node="a:1"}`, `delaybridge_redis_memory_max_bytes{node="a:1"}`
	lines := scrape(t, m)
	assert.Equal(t, "1", lines["delaybridge_redis_up"])
	assert.NotContains(t, lines, used, "nobody has asked yet")

	isUp = false
	m.RedisMemory("a:1", 5, 7)
	served := m.Timed("get", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }))
	served.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	lines = scrape(t, m)
	assert.Equal(t, "0", lines["delaybridge_redis_up"])
	assert.Equal(t, "5", lines[used])
	assert.Equal(t, "7", lines[limit])
	assert.Equal(t, "1", lines[`delaybridge_api_request_seconds_count{call="get",code="404"}`])

	m.NoRedisMemory("a:1")
	lines = scrape(t, m)
	assert.NotContains(t, lines, used, "it has not answered for long: nothing is known")
	assert.NotContains(t, lines, limit)
}
