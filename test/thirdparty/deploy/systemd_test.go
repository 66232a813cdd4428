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

// exposureMax is in tenths. systemd 252 counts 1.1 for the unit, and 1.3 or more without any one
// of its user, capabilities, address families, namespaces and calls; what is below 2.0 it calls OK.
const exposureMax = "12"

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

// analyze returns what systemd-analyze prints, and how it ended. Where there is no systemd the
// test is skipped; in CI that is an error.
func analyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip(err, `: "make provision" installs it`)
	}
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), program, append(args, "--no-pager")...).CombinedOutput()
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
	assert.NotContains(t, text, "ExecReload=/usr/local/bin/bridge", "systemd gives it no credentials, which the configuration names")
	for _, secret := range regexp.MustCompile(`(?m)^LoadCredential=(\w+):/`).FindAllStringSubmatch(text, -1) {
		assert.Contains(t, text, "\nSetCredential="+secret[1]+`:\n`+"\n", "without it a missing file keeps the bridge from starting")
	}
}
