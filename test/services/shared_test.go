package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestShared(t *testing.T) {
	t.Parallel()
	for name, get := range map[string]func(testing.TB) string{
		"redis": testenv.Redis, "nats": testenv.NATS, "rabbitmq": testenv.RabbitMQ,
		"kafka": func(t testing.TB) string { return testenv.Kafka(t)[0] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := get(t)
			require.NotEmpty(t, url)
			require.Equal(t, url, get(t), "one server for all")
			t.Log(url)
		})
	}
}
