package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestGetOfWhatHasEnded tells of it where the queue keeps a history, and else says that it
// is not found.
func TestGetOfWhatHasEnded(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.ok("schedule", "--topic", "t", "--id", "cancelled", "--key", "k", "--in", "1h", "body")
	f.ok("cancel", "--id", "cancelled")
	code, _ := f.run("get", "--id", "cancelled", "--key", "k", "-o", "json").errorOf(t)
	require.Equal(t, "not_found", code)

	storetest.SetRules(t, f.queue, layout.Rules{History: layout.History{Count: 100, Age: time.Hour}})
	f.ok("schedule", "--topic", "t", "--id", "cancelled", "--key", "k", "--in", "1h", "body")
	f.ok("cancel", "--id", "cancelled")
	got := f.ok("get", "--id", "cancelled", "--key", "k", "-o", "json").object(t)
	require.Equal(t, "cancelled", got["state"])
	requireFields(t, got, "end")

	f.ok("schedule", "--topic", "t", "--id", "published", "--in", "0s", "body")
	f.settle(f.claim(), message.Verdict{Verb: message.VerbAck, Published: true, Place: "partition 3 offset 8812"})
	require.Contains(t, f.ok("get", "--id", "published").stdout, "partition 3 offset 8812")
	require.Equal(t, exitRefused, f.run("get", "--id", "never").code)
}

// TestGetOfAnEncryptedBody: the commands seal with the configuration's keys, and show a
// body to who has its key.
func TestGetOfAnEncryptedBody(t *testing.T) {
	t.Parallel()
	f := setup(t)
	without, err := os.ReadFile(f.file)
	require.NoError(t, err)
	keys := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(keys, []byte("k1 "+strings.Repeat("ab", 32)+"\n"), 0o600))
	require.NoError(t, os.WriteFile(f.file, append(without, []byte("\nencryption: {keys: "+keys+"}\n")...), 0o600))
	f.ok("schedule", "--topic", "t", "--id", "m", "--in", "1h", "nobody's affair")
	require.Contains(t, f.ok("get", "--id", "m", "--body").stdout, "nobody's affair")
	require.Contains(t, f.ok("get", "--id", "m", "--body").stdout, "delay-sealed: k1")
	for _, args := range [][]string{{"get", "--id", "m"}, {"list"}} {
		shown := f.ok(args[0], append(args[1:], "--body", "-o", "json")...).object(t)
		require.Equal(t, "bm9ib2R5J3MgYWZmYWly", shown["body"], args)
		require.Equal(t, "k1", shown["sealed_by"], args)
	}
	require.Contains(t, f.ok("get", "--id", "m").stdout, "delay-sealed: k1")

	require.NoError(t, os.WriteFile(f.file, without, 0o600))
	f.ok("get", "--id", "m")
	hidden := f.run("get", "--id", "m", "--body")
	require.Equal(t, exitFailed, hidden.code)
	require.Contains(t, hidden.stderr, `sealed: unknown key "k1"`)
	require.NotContains(t, hidden.stdout, "(base64)")
	require.NotContains(t, f.run("get", "--id", "m", "--body", "-o", "json").object(t), "body")
	listed := f.ok("list", "--body", "-o", "json").object(t)
	require.NotContains(t, listed, "body")
	require.Equal(t, "k1", listed["sealed_by"])
}
