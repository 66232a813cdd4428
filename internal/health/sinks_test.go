package health_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/admin"
	"github.com/delaybridge/delaybridge/internal/health"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker answers pings, or does not; nil is an answer.
type broker struct {
	sinks.Sink

	err atomic.Pointer[error]
}

func (b *broker) Ping(context.Context) error {
	if err := b.err.Load(); err != nil {
		return *err
	}
	return nil
}

// TestSinks: /readyz says what pings say; the metric also what becomes of messages, so that
// an outage which no ping has seen is told, and its end too.
func TestSinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var up, down broker
		refused := errors.New("connection refused")
		down.err.Store(&refused)
		var failing atomic.Bool
		metrics := telemetry.New("test")
		states := health.NewSinks(map[string]sinks.Sink{"up": &up, "down": &down}, func(string) bool { return failing.Load() }, metrics)
		shows := func(name string, value int) {
			t.Helper()
			page := httptest.NewRecorder()
			metrics.Handler().ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
			require.Contains(t, page.Body.String(), fmt.Sprintf("delaybridge_sink_up{sink=%q} %d\n", name, value))
		}
		assert.Equal(t, []admin.Check{{Name: "sink down", Detail: "not asked yet"}, {Name: "sink up", Detail: "not asked yet"}}, states.Checks())
		states.Start(t.Context())
		defer states.Stop()
		synctest.Wait()
		assert.Equal(t, []admin.Check{{Name: "sink down", Detail: "connection refused"}, {Name: "sink up", OK: true}}, states.Checks())
		began := time.Now()
		shows("up", 1)
		shows("down", 0)
		failing.Store(true)
		shows("up", 0)
		failing.Store(false)
		shows("up", 1)
		assert.True(t, states.State("up").Since().Equal(began))

		<-time.After(time.Minute)
		down.err.Store(nil)
		<-time.After(10 * time.Second)
		shows("down", 1)
		assert.True(t, states.State("down").IsUp())
		assert.InDelta(t, time.Minute, states.State("down").Since().Sub(began), float64(10*time.Second))
		assert.True(t, states.State("up").Since().Equal(began), "it was up all the time")
	})
}

// TestRedis: of late means within ten seconds; a line says why there was no answer.
func TestRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis health.Redis
		assert.Equal(t, admin.Check{Name: "redis", Detail: "has not answered yet"}, redis.Check())
		redis.Heard(errors.New("WRONGPASS invalid username-password pair"))
		assert.True(t, strings.HasPrefix(redis.Check().Detail, "has not answered yet: WRONGPASS"), redis.Check().Detail)
		redis.Heard(nil)
		<-time.After(10 * time.Second)
		assert.Equal(t, admin.Check{Name: "redis", OK: true}, redis.Check())
		<-time.After(time.Second)
		assert.Equal(t, admin.Check{Name: "redis", Detail: "has not answered for 11s"}, redis.Check())
	})
}
