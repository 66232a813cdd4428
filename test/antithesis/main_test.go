package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/test/trial"
)

// TestWorkload runs the workload as a hypervisor does, but without faults, and reads what it was told: each Always was met and
// holds, and each Sometimes was met.
func TestWorkload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bridge, err := trial.Build(t.Context(), dir)
	require.NoError(t, err)
	w, err := trial.NewWorld(t.Context(), trial.Options{Binary: bridge, Broker: "nats", Shards: 4})
	require.NoError(t, err)
	t.Cleanup(w.Close)
	workload, err := service.Build(t.Context(), "./test/antithesis", dir, "-tags", "enable_antithesis_sdk")
	require.NoError(t, err)

	met := map[string]bool{} // by message, whether its condition held each time
	for _, more := range [][]string{{"-load", "3s"}, {"-healed"}} {
		told := filepath.Join(dir, "told.json")
		args := append([]string{"-redis", w.Redis.URL(), "-nats", w.Broker.Server().URL(), "-prefix", w.Prefix(), "-queue", w.Queue(), "-spread", "1s"}, more...)
		cmd := exec.CommandContext(t.Context(), workload, args...)
		cmd.Env = append(os.Environ(), "ANTITHESIS_SDK_LOCAL_OUTPUT="+told)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		text, err := os.ReadFile(told)
		require.NoError(t, err)
		for line := range bytes.SplitSeq(text, []byte("\n")) {
			var entry struct {
				Assert struct {
					Message, ID    string
					Condition, Hit bool
					AssertType     string `json:"assert_type"`
				} `json:"antithesis_assert"`
			}
			if a := &entry.Assert; json.Unmarshal(line, &entry) == nil && a.Hit {
				before, isKnown := met[a.Message]
				met[a.Message] = a.Condition && (before || !isKnown)
				assert.True(t, a.Condition || a.AssertType == "sometimes", a.Message)
			}
		}
	}
	assert.Len(t, met, 12, "%v", met)
	assert.True(t, met["all is out beside faults"])
	assert.True(t, met["no message is published twice"])
}
