package deploy

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/delaybridge/delaybridge/internal/config"
)

// tokens is what a file of tokens may hold.
const tokens = "3v1Vq8mZ0JrT operator name=ann\n"

// TestConfig: the bridge takes what is rendered, with the chart's addresses in it.
func TestConfig(t *testing.T) {
	t.Parallel()
	cfg := bridgeConfig(t, render(t, values(t, minimal)))
	assert.Equal(t, "127.0.0.1:8080", cfg.Admin.Listen, "nobody else reaches the API")
	assert.Equal(t, ":8081", cfg.Admin.Probes)
	assert.Equal(t, "redis://redis:6379/0", cfg.Redis.URL)

	o := render(t, values(t, everything))
	cfg = bridgeConfig(t, o)
	assert.Equal(t, ":8080", cfg.Admin.Listen)
	assert.NotEmpty(t, cfg.Admin.Auth.TokensFile)
	assert.Equal(t, 90*time.Second, cfg.DrainTimeout)
	assert.Equal(t, int32(8080), o.service.Spec.Ports[0].Port)
	assert.Equal(t, o.service.Spec.Ports[0].TargetPort.StrVal, o.bridge.Ports[1].Name)
	assert.Equal(t, "registry.example.com/delaybridge@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", o.bridge.Image)
}

// TestChangedConfigRestartsThePods, and nothing else does.
func TestChangedConfigRestartsThePods(t *testing.T) {
	t.Parallel()
	sum := func(changes ...string) string {
		text := render(t, values(t, minimal, changes...)).deployment.Spec.Template.Annotations["checksum/config"]
		require.NotEmpty(t, text)
		return text
	}
	assert.Equal(t, sum(), sum("replicas: 5"))
	assert.NotEqual(t, sum(), sum("config: {log: {level: debug}}"))
}

// TestGracePeriodOutlastsTheDrain: what is left is closed within ten seconds after it.
func TestGracePeriodOutlastsTheDrain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change string
		want   int64
	}{
		{"{}", 35},
		{"config: {drain_timeout: 1m30s}", 105},
		{"config: {drain_timeout: 1500ms}", 17},
		{"config: {drain_timeout: 1h}", 3615},
		{"terminationGracePeriodSeconds: 30", 30},
		{"{config: {drain_timeout: 5m}, terminationGracePeriodSeconds: 400}", 400},
		{"config: {admin: {lame_duck: 7s}}", 42},
		{"{config: {admin: {read_only: true}}, service: {enabled: true}}", 45},
		{"{config: {admin: {read_only: true, lame_duck: 1m}}, service: {enabled: true}}", 95},
	} {
		o := render(t, values(t, minimal, c.change))
		got := *o.deployment.Spec.Template.Spec.TerminationGracePeriodSeconds
		assert.Equal(t, c.want, got, c.change)
		cfg := bridgeConfig(t, o)
		least := cfg.Admin.LameDuck + cfg.DrainTimeout + 10*time.Second
		assert.GreaterOrEqual(t, time.Duration(got)*time.Second, least, c.change)
	}
}

func TestMemoryLimitOfGo(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]string{"512Mi": "483183820", "1Gi": "966367641", "1G": "900000000", "500M": "450000000", "600000k": "540000000"} {
		o := render(t, values(t, minimal, fmt.Sprintf("resources: {limits: {memory: %s}}", limit)))
		assert.Equal(t, want, variable(t, o.bridge, "GOMEMLIMIT").Value, limit)
		assert.Equal(t, want, variable(t, o.tester, "GOMEMLIMIT").Value, limit)
	}
	o := render(t, values(t, minimal, "resources: {limits: {memory: null}}"))
	for _, v := range o.bridge.Env {
		assert.NotEqual(t, "GOMEMLIMIT", v.Name, "without a limit")
	}
}

// TestNetworkPolicy: both directions are closed but for what is named.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	policy := render(t, values(t, everything)).policy.Spec
	assert.ElementsMatch(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, policy.PolicyTypes)
	require.Len(t, policy.Ingress, 2)
	assert.Equal(t, 8081, policy.Ingress[0].Ports[0].Port.IntValue())
	assert.Len(t, policy.Ingress[0].From, 1)
	assert.Equal(t, 8080, policy.Ingress[1].Ports[0].Port.IntValue())
	assert.Equal(t, map[string]string{"app": "ingress"}, policy.Ingress[1].From[0].PodSelector.MatchLabels)

	open := map[string]int{} // Peers by port; 0 is everywhere.
	for _, rule := range policy.Egress {
		for _, port := range rule.Ports {
			open[fmt.Sprintf("%s %v", *port.Protocol, port.Port)] = len(rule.To)
		}
	}
	assert.Equal(t, map[string]int{
		"UDP 53": 1, "TCP 53": 1, "TCP 6379": 1, "TCP 5432": 1, "TCP 4222": 0, "TCP 5671": 0, "TCP 5672": 0, "TCP 9092": 0, "TCP 9093": 0, "TCP 4318": 0,
	}, open)

	for _, change := range []string{"service: {enabled: false}", "networkPolicy: {ingress: {admin: []}}"} {
		assert.Len(t, render(t, values(t, everything, change)).policy.Spec.Ingress, 1, "nobody reaches the API: %s", change)
	}
}

func TestMonitoring(t *testing.T) {
	t.Parallel()
	o := render(t, values(t, everything))
	assert.Equal(t, o.bridge.Ports[0].Name, *o.monitor.Spec.PodMetricsEndpoints[0].Port)
	assert.Equal(t, "/metrics", o.monitor.Spec.PodMetricsEndpoints[0].Path)
	require.NotEmpty(t, o.rules.Spec.Groups)
	assert.Equal(t, "DelaybridgeDown", o.rules.Spec.Groups[0].Rules[0].Alert)
	for _, labels := range []map[string]string{o.monitor.Labels, o.rules.Labels} {
		assert.Equal(t, "prometheus", labels["release"])
	}
}

// TestWrongValuesAreRefused, before anything is installed, and the message names the value.
func TestWrongValuesAreRefused(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]string{
		"replica: 3":                                     "'replica' not allowed",
		"replicas: two":                                  "replicas",
		"replicas: -1":                                   "replicas",
		"image: {tags: v1}":                              "'tags' not allowed",
		"image: {digest: v1}":                            "digest",
		"resources: {limits: {memory: 0.5Gi}}":           "memory",
		"resources: {limits: {mem: 1Gi}}":                "'mem' not allowed",
		"secrets: [{name: redis}]":                       "secrets",
		"networkPolicy: {egress: {redis: {port: 6379}}}": "'port' not allowed",
		"networkPolicy: {egress: {redis: {peers: [{podselector: {}}]}}}": "'podselector' not allowed",
		"networkPolicy: {ingress: {admin: [{}]}}":                        "minProperties",
		"networkPolicy: {dns: {port: 53}}":                               "'port' not allowed",
		"serviceAccount: {token: true}":                                  "'token' not allowed",
		"image: {tag: 1.10}":                                             "tag",
		"podDisruptionBudget: {maxUnavailable: 0}":                       "maxUnavailable",
		"topologySpreadConstraints: [{topologyKey: zone}]":               "topologySpreadConstraints",
		"config: {queue: {}}":                                            "'queue' not allowed",
		"config: {queues: {orders: {shard: 8}}}":                         "'shard' not allowed",
		"config: {sinks: {events: {type: pulsar}}}":                      "type",
		"config: {drain_timeout: soon}":                                  "drain_timeout",
		"config: {drain_timeout: 1d}":                                    "drain_timeout",
		"config: {drain_timeout: 1m}\nterminationGracePeriodSeconds: 69": "give 70 or more",
		"terminationGracePeriodSeconds: 29":                              "give 30 or more",
		"config: {admin: {listen: \":8080\"}}":                           "set by the chart",
		"config: {admin: {probes: \":9090\"}}":                           "set by the chart",
		"config: {instance: bridge}":                                     "set by the chart",
		"service: {enabled: true}":                                       "tokens_file",
		"service: {enabled: true}\nconfig: {admin: {tls: {cert_file: a, key_file: b, client_ca_file: c, client_certs: optional}}}": "config.admin.auth",
		"config: {admin: {auth: {issuers: {corp: {uri: a}}}}}":                                                                     "'uri' not allowed",
		"migrate: {enabled: true}": "give config.outbox",
		"migrate: {enable: true}":  "'enable' not allowed",
	} {
		_, err := template(t, values(t, minimal, change))
		assert.ErrorContains(t, err, want, change)
	}
	_, err := template(t, map[string]any{})
	require.ErrorContains(t, err, "sinks")
	_, err = template(t, map[string]any{"config": map[string]any{"sinks": map[string]any{"events": map[string]any{"type": "nats", "url": "nats://nats:4222"}}}})
	assert.ErrorContains(t, err, "give config.queues")
}

// TestMigration: the Job needs nothing of what is installed after it, and its variables are
// its own.
func TestMigration(t *testing.T) {
	t.Parallel()
	assert.Nil(t, render(t, values(t, everything)).migration)
	o := render(t, values(t, everything, "migrate: {enabled: true, extraEnv: [{name: DELAYBRIDGE__OUTBOX__DSN_FILE, value: /run/secrets/owner/dsn}]}"))
	require.NotNil(t, o.migration)
	for _, annotations := range []map[string]string{o.migration.Annotations, o.migrated.Annotations} {
		assert.Equal(t, "pre-install,pre-upgrade", annotations["helm.sh/hook"])
	}
	assert.Equal(t, o.config.Data, o.migrated.Data)
	pod := o.migration.Spec.Template.Spec
	assertMounted(t, pod)
	assert.Equal(t, "default", pod.ServiceAccountName, "the release's is not there before the first install")
	assert.Equal(t, o.migrated.Name, pod.Volumes[0].ConfigMap.Name)
	container := pod.Containers[0]
	assert.Equal(t, []string{"outbox", "migrate", "up", "--config", "/etc/delaybridge/bridge.yaml"}, container.Args)
	assert.Equal(t, o.bridge.Image, container.Image, "the new program migrates")
	assert.Equal(t, "/run/secrets/owner/dsn", variable(t, container, "DELAYBRIDGE__OUTBOX__DSN_FILE").Value)
	assert.NotContains(t, fmt.Sprint(o.bridge.Env), "DELAYBRIDGE__OUTBOX__DSN_FILE")
	assert.NotSubset(t, o.migration.Spec.Template.Labels, o.deployment.Spec.Selector.MatchLabels, "it is no bridge")
	assert.Subset(t, o.migration.Spec.Template.Labels, o.policy.Spec.PodSelector.MatchLabels)
}

// TestUserOfThePods: the cluster may choose it.
func TestUserOfThePods(t *testing.T) {
	t.Parallel()
	assert.Equal(t, int64(65532), *render(t, values(t, minimal)).deployment.Spec.Template.Spec.SecurityContext.RunAsUser)
	chosen := render(t, values(t, minimal, "podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}")).deployment.Spec.Template.Spec.SecurityContext
	assert.Nil(t, chosen.RunAsUser)
	assert.Nil(t, chosen.RunAsGroup)
	assert.Nil(t, chosen.FSGroup)
	assert.True(t, *chosen.RunAsNonRoot)
}

// TestScaledByOthers: what an autoscaler sets is not set back by each upgrade.
func TestScaledByOthers(t *testing.T) {
	t.Parallel()
	assert.Nil(t, render(t, values(t, minimal, "replicas: null")).deployment.Spec.Replicas)
	assert.Equal(t, int32(0), *render(t, values(t, minimal, "replicas: 0")).deployment.Spec.Replicas)
}

// TestDefaultDrainTimeout: the chart and the unit count on it.
func TestDefaultDrainTimeout(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 20*time.Second, defaultConfig(t).DrainTimeout)
}

func defaultConfig(t *testing.T) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(`{queues: {orders: {sink: events}}, sinks: {events: {type: nats, url: "nats://nats:4222"}}}`), nil)
	require.NoError(t, err)
	return cfg
}

// TestValuesOfThePages: what pages give as examples is taken.
func TestValuesOfThePages(t *testing.T) {
	t.Parallel()
	shown := func(page string) string {
		text, err := os.ReadFile(root + page)
		require.NoError(t, err)
		_, rest, found := strings.Cut(string(text), "```yaml\n# values.yaml\n")
		require.True(t, found, page)
		example, _, _ := strings.Cut(rest, "```")
		return example
	}
	example := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(shown("docs/deploy.md")), &example))
	o := render(t, example)
	assert.NotNil(t, o.policy)
	assert.Equal(t, "/run/secrets/delaybridge-redis", o.bridge.VolumeMounts[1].MountPath)
	bridgeConfig(t, o)

	o = render(t, values(t, minimal, shown("docs/identity.md"), "networkPolicy: {enabled: true}"))
	assertMounted(t, o.deployment.Spec.Template.Spec)
	rules := o.policy.Spec.Egress
	require.NotEmpty(t, rules)
	assert.True(t, slices.ContainsFunc(rules, func(rule networkingv1.NetworkPolicyEgressRule) bool {
		return slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.IntVal == 6443 })
	}), "the API server can be reached")

	o = render(t, values(t, minimal, shown("docs/autoscaling.md"), "networkPolicy: {enabled: true}"))
	assert.NotEmpty(t, bridgeConfig(t, o).Admin.Auth.TokensFile)
	require.Len(t, o.policy.Spec.Ingress, 2)
	from := o.policy.Spec.Ingress[1].From
	require.Len(t, from, 1)
	assert.Equal(t, "keda", from[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"])
	assert.Equal(t, int32(8080), o.service.Spec.Ports[0].Port, "as in deploy/kubernetes/keda.yaml")
}
