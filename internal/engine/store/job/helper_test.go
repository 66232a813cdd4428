package job_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shared is a client of the shared Redis.
func shared(t testing.TB) *redis.Client {
	t.Helper()
	return storetest.Connect(t, testenv.Redis(t))
}
