package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// whole are the sections without which there is no configuration, for blocks that show others.
var whole = map[string]any{
	"queues": map[string]any{"orders": map[string]any{"sink": "events"}},
	"sinks":  map[string]any{"events": map[string]any{"type": "nats", "url": "nats://nats:4222"}},
}

// secretFile is a file that is there where the configuration is used.
var secretFile = regexp.MustCompile(`(/var)?/run/secrets/[\w./-]+`)

// TestConfigurations validates what pages show of configurations.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	count, certs := 0, testenv.NewCerts(t)
	listener := strings.NewReplacer("/etc/delaybridge/admin.pem", certs.ServerCert, "/etc/delaybridge/admin.key", certs.ServerKey, "/etc/delaybridge/clients-ca.pem", certs.CAFile)
	for _, p := range readPages(t) {
		for _, b := range p.blocks {
			text := strings.Join(b.lines, "\n")
			if b.language != "yaml" || strings.HasPrefix(text, "# values.yaml\n") { // test/thirdparty/deploy renders the chart with it.
				continue
			}
			count++
			sections := map[string]any{}
			require.NoError(t, yaml.Unmarshal([]byte(text), &sections), "%s:%d", p.name, b.line)
			s := shell{t: t, dir: t.TempDir()}
			for name, section := range whole {
				if sections[name] == nil {
					added, err := yaml.Marshal(map[string]any{name: section})
					require.NoError(t, err)
					text += "\n" + string(added)
				}
			}
			s.write("secret", "secret")
			require.NoError(t, os.Mkdir(filepath.Join(s.dir, "teams"), 0o700)) // of queue files
			s.write("bridge.yaml", secretFile.ReplaceAllString(listener.Replace(text), filepath.Join(s.dir, "secret")))
			validate := exec.CommandContext(t.Context(), binary, "config", "validate", "--config", filepath.Join(s.dir, "bridge.yaml"))
			validate.Env = []string{"RABBITMQ_PASSWORD=secret"}
			out, err := validate.CombinedOutput()
			assert.NoError(t, err, "%s:%d: %s\n%s", p.name, b.line, out, text)
		}
	}
	require.Positive(t, count)
}
