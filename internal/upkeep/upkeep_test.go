package upkeep_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/telemetry"
	"github.com/delaybridge/delaybridge/internal/upkeep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// upkeepQueue is a queue with its upkeep, as seen by one instance.
type upkeepQueue struct {
	upkeep.Queue

	t        *testing.T
	config   config.Queue // in force
	isKeeper atomic.Bool
	logs     testenv.Log
}

func newKept(t *testing.T, queue *store.Queue) *upkeepQueue {
	t.Helper()
	k := &upkeepQueue{t: t}
	k.isKeeper.Store(true)
	k.Queue = upkeep.Queue{
		Store: queue, Config: func() *config.Queue { return &k.config }, IsKeeper: k.isKeeper.Load,
		Metrics: telemetry.New("test"), Logger: slog.New(slog.NewTextHandler(io.MultiWriter(&k.logs, t.Output()), nil)),
	}
	k.Metrics.AddQueue(queue.Name())
	return k
}

// said is how often the log has the text.
func (k *upkeepQueue) said(text string) int { return strings.Count(k.logs.String(), text) }

// metrics is what a scrape sees.
func (k *upkeepQueue) metrics() string {
	page := httptest.NewRecorder()
	k.Metrics.Handler().ServeHTTP(page, httptest.NewRequestWithContext(k.t.Context(), http.MethodGet, "/metrics", http.NoBody))
	return page.Body.String()
}

// client is a producer's.
func client(t *testing.T, rdb redis.UniversalClient, queue *store.Queue, options ...delay.Option) *delay.Client {
	t.Helper()
	c, err := delay.NewClient(rdb, queue.Name(), options...)
	require.NoError(t, err)
	return c
}

// TestTroubleIsToldOnce, and again when it has another cause or comes again.
func TestTroubleIsToldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logs testenv.Log
		away, full := errors.New("dial tcp: connection refused"), errors.New("OOM command not allowed")
		turns := []error{away, away, full, full, nil, full, nil}
		ctx, cancel := context.WithCancel(t.Context())
		took := 0
		upkeep.Rounds(ctx, time.Minute, slog.New(slog.NewTextHandler(&logs, nil)), func(context.Context) error {
			err := turns[took]
			if took++; took == len(turns) {
				cancel()
			}
			return err
		})
		assert.Len(t, turns, took)
		assert.Equal(t, 3, strings.Count(logs.String(), "it fails, trying again"), "%s", &logs)
		assert.Equal(t, 1, strings.Count(logs.String(), `err="dial tcp`))
	})
}
