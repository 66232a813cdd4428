package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const unitFile = root + "deploy/systemd/delaybridge.service"

// exposureMax is in tenths: systemd calls what is below 2.0 OK.
const exposureMax = "19"

// unit is a copy that starts a program that is there.
func unit(t *testing.T) (file, text string) {
	t.Helper()
	content, err := os.ReadFile(unitFile)
	require.NoError(t, err)
	program, err := os.Executable()
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "delaybridge.service")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(content), "/usr/local/bin/bridge", program)), 0o600))
	return file, string(content)
}

// analyze returns what systemd-analyze prints, and how it ended.
func analyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", append(args, "--no-pager")...).CombinedOutput()
	return string(out), err
}

func TestUnitIsValid(t *testing.T) {
	t.Parallel()
	file, _ := unit(t)
	out, err := analyze(t, "verify", "--man=no", file)
	require.NoError(t, err, out)
	assert.NotContains(t, out, "delaybridge.service", "systemd ignores a line")
}

func TestUnitIsHardened(t *testing.T) {
	t.Parallel()
	file, _ := unit(t)
	out, err := analyze(t, "security", "--offline=true", "--threshold="+exposureMax, file)
	require.NoError(t, err, out)
	require.Contains(t, out, "Overall exposure level")
}

// TestUnitWaitsForTheDrain, and has what the bridge needs to speak with systemd.
func TestUnitWaitsForTheDrain(t *testing.T) {
	t.Parallel()
	_, text := unit(t)
	for _, line := range []string{"Type=notify", "NotifyAccess=main", "WatchdogSec=30s", "Restart=always"} {
		assert.Contains(t, text, "\n"+line+"\n")
	}
	found := regexp.MustCompile(`(?m)^TimeoutStopSec=(.*)$`).FindStringSubmatch(text)
	require.NotNil(t, found)
	timeout, err := time.ParseDuration(found[1])
	require.NoError(t, err)
	assert.GreaterOrEqual(t, timeout, defaultConfig(t).DrainTimeout+10*time.Second)
	for _, secret := range regexp.MustCompile(`(?m)^LoadCredential=(\w+):/`).FindAllStringSubmatch(text, -1) {
		assert.Contains(t, text, "\nSetCredential="+secret[1]+`:\n`+"\n", "without it a missing file keeps the bridge from starting")
	}
}
