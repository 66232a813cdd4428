package deploy

import (
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/delaybridge/delaybridge/internal/config"
)

// compose reads docker-compose.yml with these profiles as `docker compose config` does: by
// its schema, and each reference must lead somewhere.
func compose(t *testing.T, profiles ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{root + "docker-compose.yml"}, cli.WithProfiles(profiles), cli.WithResolvedPaths(true))
	require.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	return project
}

func TestComposeProfiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ profiles, want []string }{
		{nil, []string{"nats", "redis"}},
		{[]string{"brokers"}, []string{"kafka", "nats", "rabbitmq", "redis"}},
		{[]string{"database"}, []string{"nats", "postgres", "redis"}},
		{[]string{"bridge"}, []string{"bridge-a", "bridge-b", "consumer", "grafana", "migrate", "nats", "postgres", "producer", "prometheus", "redis"}},
	} {
		names := compose(t, c.profiles...).ServiceNames()
		slices.Sort(names)
		assert.Equal(t, c.want, names, c.profiles)
	}
}

func TestComposeServices(t *testing.T) {
	t.Parallel()
	dockerfile, err := os.ReadFile(root + "deploy/Dockerfile")
	require.NoError(t, err)
	ports := map[string]string{}
	for name, service := range compose(t, "*").Services {
		if service.Build != nil {
			assert.FileExists(t, service.Build.Context+"/"+service.Build.Dockerfile, name)
			assert.Contains(t, string(dockerfile), " AS "+service.Build.Target+"\n", name)
		} else {
			image, tag, _ := strings.Cut(service.Image, ":")
			assert.NotEmpty(t, image, name)
			assert.Regexp(t, `^v?[0-9]`, tag, "the version of %s", name)
			require.NotNil(t, service.HealthCheck, name)
			assert.NotEmpty(t, service.HealthCheck.Test, name)
		}
		for _, volume := range service.Volumes {
			if volume.Type == types.VolumeTypeBind {
				_, err := os.Stat(volume.Source)
				assert.NoError(t, err, name)
				assert.True(t, volume.ReadOnly, "%s: %s", name, volume.Source)
			}
		}
		for _, port := range service.Ports {
			assert.Equal(t, "127.0.0.1", port.HostIP, "%s is for this machine only", name)
			assert.Empty(t, ports[port.Published], "%s: port %s is taken", name, port.Published)
			ports[port.Published] = name
		}
	}
}

// TestComposeMigratesFirst: whoever uses the tables waits until they are there. Without anybody who
// waits for the end of migrate, `up --wait` would take it for a failure.
func TestComposeMigratesFirst(t *testing.T) {
	t.Parallel()
	services := compose(t, "bridge").Services
	for _, name := range []string{"bridge-a", "bridge-b", "producer"} {
		assert.Equal(t, types.ServiceConditionCompletedSuccessfully, services[name].DependsOn["migrate"].Condition, name)
	}
}

// TestComposeFindsItsServers: what the bridges, Prometheus and Grafana are told to connect to is a service.
func TestComposeFindsItsServers(t *testing.T) {
	t.Parallel()
	services := compose(t, "bridge").Services
	cfg, err := config.Load(root+"deploy/compose/bridge.yaml", nil)
	require.NoError(t, err)
	addresses := []string{cfg.Redis.URL, cfg.Sinks["events"].NATS.URL}
	for _, name := range []string{"producer", "consumer"} {
		for _, value := range services[name].Environment {
			addresses = append(addresses, *value)
		}
	}
	for _, address := range addresses {
		at, err := url.Parse(address)
		require.NoError(t, err)
		assert.Contains(t, services, at.Hostname(), address)
	}
	for _, name := range []string{"bridge-a", "bridge-b"} {
		require.NotNil(t, services[name].HealthCheck, name)
		assert.Equal(t, types.HealthCheckTest{"CMD", "/bridge", "ready", "--config", "/etc/delaybridge/bridge.yaml"}, services[name].HealthCheck.Test)
	}
	assert.GreaterOrEqual(t, time.Duration(*services["bridge-a"].StopGracePeriod), cfg.DrainTimeout+10*time.Second)

	var prometheus struct {
		ScrapeConfigs []struct {
			StaticConfigs []struct{ Targets []string } `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	content, err := os.ReadFile(root + "deploy/prometheus/prometheus.yml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(content, &prometheus))
	targets := prometheus.ScrapeConfigs[0].StaticConfigs[0].Targets
	assert.Equal(t, []string{"bridge-a:8080", "bridge-b:8080"}, targets)
	datasources, err := os.ReadFile(root + "deploy/grafana/datasources.yml")
	require.NoError(t, err)
	assert.Contains(t, string(datasources), "http://prometheus:9090")
}
