package rabbitmq

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	const url, secure = "amqp://user:hidden@localhost/", "amqps://user:hidden@localhost/"
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"no url":              {Config{}, "url is missing"},
		"other scheme":        {Config{URL: url + "," + "http://user:hidden@localhost"}, "url 2: not an amqp"},
		"unescaped password":  {Config{URL: "amqp://user:hid#den@localhost"}, "percent-encoded"},
		"auth":                {Config{URL: url, Auth: "magic"}, `auth "magic"`},
		"external, no TLS":    {Config{URL: url, Auth: AuthExternal}, "amqps"},
		"TLS, plain URL":      {Config{URL: url, TLS: &tlsclient.Files{CAFile: "ca.pem"}}, "not amqps"},
		"missing file":        {Config{URL: secure, TLS: &tlsclient.Files{CAFile: "/nowhere"}}, "ca_file"},
		"too few connections": {Config{URL: url, Connections: -1}, "connections -1"},
		"too many":            {Config{URL: url, Connections: 65}, "connections 65"},
		"timeout":             {Config{URL: url, PublishTimeout: -time.Second}, "publish timeout"},
		"exchange":            {Config{URL: url, Exchange: strings.Repeat("e", 256)}, "exchange"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := New(c.config, quiet())
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "hid")
		})
	}
}

func TestNewDefaults(t *testing.T) {
	t.Parallel()
	sink := newSink(t, Config{URL: "amqp://localhost", TLS: &tlsclient.Files{}})
	require.Len(t, sink.connections.places, 4)
	require.Equal(t, 10*time.Second, sink.config.PublishTimeout)
	require.Equal(t, AuthPlain, sink.config.Auth)
}
