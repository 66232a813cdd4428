package command

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestInlets: people get a table in which a dash is what is not known, and errors say what to do.
func TestInlets(t *testing.T) {
	t.Parallel()
	a := newAgreement(t, "")
	o := bridge(t, "", "inlets", "--config", a.file, "--url", a.server.URL, "-o", "wide")
	require.Equal(t, exitDone, o.code, "%+v", o)
	lines := strings.Split(o.stdout, "\n")
	require.Len(t, lines, 5)
	for _, text := range []string{"delay.commands", "waiting", "7", "0.5", "redis: connection refused", "schedule created=4, invalid=1", "DELAY/3@1: no such operation"} {
		assert.Contains(t, lines[1], text)
	}
	assert.Equal(t, []string{"delayed", "delayed", "orders", "disconnected", "2026-11-26T20:00:00.000Z", "-", "-", "0", "0", "broker", "events", "-", "-"}, strings.Fields(lines[2]))
	assert.Equal(t, "as bridge-1 sees them, since 2026-11-26T20:00:00.000Z", lines[3])

	nobody := httptest.NewServer(nil)
	address := nobody.Listener.Addr().String()
	nobody.Close()
	text, err := os.ReadFile(a.file)
	require.NoError(t, err)
	for admin, c := range map[string]struct {
		code int
		says string
	}{
		`""`:                {exitUsage, "admin.listen: the bridge has no listener"},
		`"` + address + `"`: {exitFailed, "no bridge answers"},
	} {
		file := filepath.Join(t.TempDir(), "bridge.yaml")
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), `admin: {listen: ""}`, "admin: {listen: "+admin+"}", 1)), 0o600))
		o := bridge(t, "", "inlets", "--config", file)
		assert.Equal(t, c.code, o.code, "%+v", o)
		assert.Contains(t, o.stderr, c.says)
	}
	o = bridge(t, "", "inlets", "--config", a.file, "--url", a.server.URL, "--token-file", filepath.Join(t.TempDir(), "none"))
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "--token-file")

	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer its-token-1" {
			_, _ = w.Write([]byte(`{"instance": "bridge-1", "inlets": []}`))
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"code": "unauthorized", "detail": "the token is not known"}`))
	}))
	t.Cleanup(guarded.Close)
	o = bridge(t, "", "inlets", "--config", a.file, "--url", guarded.URL, "-o", "json")
	code, _ := o.errorOf(t)
	assert.Equal(t, []any{exitFailed, "unauthorized"}, []any{o.code, code})
	assert.Contains(t, o.stderr, "--token-file")
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("its-token-1\n"), 0o600))
	o = bridge(t, "", "inlets", "--config", a.file, "--url", guarded.URL, "--token-file", file)
	assert.Equal(t, outcome{exitDone, "bridge-1 has no inlets\n", ""}, o)
}
