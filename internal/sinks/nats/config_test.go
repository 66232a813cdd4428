package nats_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/sinks/nats"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	const url = "nats://127.0.0.1:4222"
	for name, config := range map[string]nats.Config{
		"no url":               {},
		"empty list":           {URL: " , "},
		"scheme":               {URL: "http://127.0.0.1:4222"},
		"second of a list":     {URL: "nats://one:4222,kafka://two:9092"},
		"no host":              {URL: "nats://:4222"},
		"two logins":           {URL: url, User: "u", Token: secret.Value("t")},
		"seed and credentials": {URL: url, NKeyFile: "a", CredsFile: "b"},
		"password alone":       {URL: url, Password: secret.Value("p")},
		"negative timeout":     {URL: url, PublishTimeout: -time.Second},
		"half a certificate":   {URL: url, TLS: &tlsclient.Files{CertFile: "c"}},
	} {
		_, err := nats.New(config, slog.New(slog.DiscardHandler))
		require.Error(t, err, name)
	}
	sink, err := nats.New(nats.Config{URL: "nats://a:4222, tls://b:4222,c", User: "u", Password: secret.Value("p")}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, sink.Close(t.Context()))
}

func TestErrorsAndLogsHoldNoPassword(t *testing.T) {
	t.Parallel()
	const hidden = "pa%zz"
	_, err := nats.New(nats.Config{URL: "nats://u:" + hidden + "@host:4222"}, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "url")
	require.NotContains(t, err.Error(), hidden)

	var log bytes.Buffer
	sink, err := nats.New(nats.Config{URL: "nats://u:s3cret@127.0.0.1:1,nats://u:s3cret@127.0.0.1:2"}, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	err = sink.Ping(t.Context())
	require.Error(t, err)
	require.Error(t, sink.Ping(t.Context()))
	require.NoError(t, sink.Close(t.Context()))
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("sink_connect_failed")), "said once, not at each attempt")
	require.NotContains(t, log.String()+err.Error(), "s3cret")
}
