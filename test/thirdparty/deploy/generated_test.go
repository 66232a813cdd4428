package deploy

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// update is set by `make manifests`.
var update = flag.Bool("update", false, "write the files that are made of others")

// generated compares a file with what it is made of.
func generated(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, want, string(got), "%s is stale: make manifests", file)
}

// TestAlertsAreCurrent: a chart reads no files but its own.
func TestAlertsAreCurrent(t *testing.T) {
	alerts, err := os.ReadFile(root + "deploy/prometheus/alerts.yml")
	require.NoError(t, err)
	generated(t, chartDir+"/files/alerts.yml", string(alerts))
}

// TestSchemaIsCurrent: the values' schema has the bridge's as that of config.
func TestSchemaIsCurrent(t *testing.T) {
	bridge, schema := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for file, into := range map[string]*map[string]json.RawMessage{"configs/bridge.schema.json": &bridge, "deploy/helm/delaybridge/values.schema.json": &schema} {
		content, err := os.ReadFile(root + file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(content, into))
	}
	delete(bridge, "$schema")
	properties := map[string]json.RawMessage{}
	require.NoError(t, json.Unmarshal(schema["properties"], &properties))
	properties["config"] = encoded(t, bridge)
	schema["properties"] = encoded(t, properties)
	var indented bytes.Buffer
	require.NoError(t, json.Indent(&indented, encoded(t, schema), "", "  "))
	generated(t, chartDir+"/values.schema.json", indented.String())
}

func encoded(t *testing.T, object map[string]json.RawMessage) []byte {
	t.Helper()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	require.NoError(t, encoder.Encode(object))
	return out.Bytes()
}

const manifestsHead = `# "make manifests" makes this from the chart deploy/helm/delaybridge and values.yaml beside
# this file: change those. docs/deploy.md says how to use it.
`

// ofHelm are lines that say who installs, which without Helm would not be true.
var ofHelm = regexp.MustCompile(`(?m)^ *(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n`)

func TestManifestsAreCurrent(t *testing.T) {
	files, err := template(t, values(t, root+"deploy/kubernetes/values.yaml"))
	require.NoError(t, err)
	text := manifestsHead
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.Contains(name, "/templates/tests/") {
			text += "---\n" + strings.TrimSpace(ofHelm.ReplaceAllString(files[name], "")) + "\n"
		}
	}
	generated(t, root+"deploy/kubernetes/delaybridge.yaml", text)
	assert.NotContains(t, strings.ToLower(strings.TrimPrefix(text, manifestsHead)), "helm")
}
