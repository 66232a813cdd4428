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
		"other scheme":        {Config{URLs: []string{url, "http://user:hidden@localhost"}}, "url 2: not an amqp"},
		"unescaped password":  {Config{URLs: []string{"amqp://user:hid#den@localhost"}}, "percent-encoded"},
		"auth":                {Config{URLs: []string{url}, Auth: "magic"}, `auth "magic"`},
		"external, no TLS":    {Config{URLs: []string{url}, Auth: AuthExternal}, "amqps"},
		"TLS, plain URL":      {Config{URLs: []string{url}, TLS: &tlsclient.Files{CAFile: "ca.pem"}}, "not amqps"},
		"missing file":        {Config{URLs: []string{secure}, TLS: &tlsclient.Files{CAFile: "/nowhere"}}, "ca_file"},
		"too few connections": {Config{URLs: []string{url}, Connections: -1}, "connections -1"},
		"too many":            {Config{URLs: []string{url}, Connections: 65}, "connections 65"},
		"timeout":             {Config{URLs: []string{url}, PublishTimeout: -time.Second}, "publish timeout"},
		"exchange":            {Config{URLs: []string{url}, Exchange: strings.Repeat("e", 256)}, "exchange"},
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
	sink := newSink(t, Config{URLs: []string{"amqp://localhost"}, TLS: &tlsclient.Files{}})
	require.Len(t, sink.connections.places, 4)
	require.Equal(t, 10*time.Second, sink.config.PublishTimeout)
	require.Equal(t, AuthPlain, sink.config.Auth)
}
