package command

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestReady(t *testing.T) {
	t.Parallel()
	answers := func(status int, text string) (address string) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, "/readyz", r.URL.Path)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
		}))
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	ready := answers(http.StatusOK, "ok redis\nok sink events\n")
	down := answers(http.StatusServiceUnavailable, "ok redis\ndown sink events: connection refused\n")
	_, port, err := net.SplitHostPort(ready)
	require.NoError(t, err)
	silent := httptest.NewServer(nil)
	nobody := silent.Listener.Addr().String()
	silent.Close()
	certs := testenv.NewCerts(t)
	tls := "tls: {cert_file: " + certs.ServerCert + ", key_file: " + certs.ServerKey + "}"
	for name, c := range map[string]struct {
		admin string
		code  int
		says  string
	}{
		"ready":           {`listen: "` + ready + `"`, 0, "ok redis\nok sink events\n"},
		"on all":          {`listen: "0.0.0.0:` + port + `"`, 0, "ok redis\n"},
		"by the probes":   {`listen: "` + down + `", probes: "` + ready + `"`, 0, "ok redis\n"},
		"not ready":       {`listen: "` + down + `"`, 1, "ok redis; down sink events: connection refused"},
		"nobody":          {`listen: "` + nobody + `"`, 1, "no bridge answers"},
		"no listener":     {`listen: ""`, 2, "admin.listen: the bridge has no listener"},
		"TLS":             {`listen: "` + ready + `", ` + tls, 2, "admin.probes: missing"},
		"TLS, and probes": {`listen: "127.0.0.1:1", probes: "` + ready + `", ` + tls, 0, "ok redis\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "bridge.yaml")
			text := fmt.Sprintf("redis: {url: \"redis://127.0.0.1:1\"}\nqueues: {orders: {sink: events}}\nsinks: {events: {type: nats, url: \"nats://127.0.0.1:1\"}}\nadmin: {%s}\n", c.admin)
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			o := bridge(t, "", "ready", "--config", file)
			assert.Equal(t, c.code, o.code, "%+v", o)
			if c.code == 0 {
				assert.Contains(t, o.stdout, c.says)
				assert.Empty(t, o.stderr)
			} else {
				assert.Contains(t, o.stderr, c.says)
				assert.Empty(t, o.stdout)
			}
		})
	}
}
