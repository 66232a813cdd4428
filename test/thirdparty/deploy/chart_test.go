package deploy

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/delaybridge/delaybridge/internal/config"
)

const (
	root     = "../../../"
	chartDir = root + "deploy/helm/delaybridge"

	minimal    = chartDir + "/ci/minimal-values.yaml"
	everything = chartDir + "/ci/everything-values.yaml"
)

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	require.NoError(t, err)
	return c
}

// values are those of a file, with changes over them: YAML each.
func values(t *testing.T, file string, changes ...string) map[string]any {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	all := map[string]any{}
	require.NoError(t, yaml.Unmarshal(content, &all))
	for _, change := range changes {
		over := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(change), &over), change)
		all = chartutil.MergeTables(over, all)
	}
	return all
}

// template renders the chart, as `helm template` does: a text for each file.
func template(t *testing.T, values map[string]any) (map[string]string, error) {
	t.Helper()
	c := load(t)
	release := chartutil.ReleaseOptions{Name: "delaybridge", Namespace: "messaging", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	maps.DeleteFunc(files, func(name, text string) bool {
		return strings.HasSuffix(name, ".txt") || strings.TrimSpace(text) == ""
	})
	return files, err
}

// objects are what Kubernetes gets, by kind; the test's pod is apart.
type objects struct {
	config         *corev1.ConfigMap
	deployment     *appsv1.Deployment
	budget         *policyv1.PodDisruptionBudget
	policy         *networkingv1.NetworkPolicy
	service        *corev1.Service
	account        *corev1.ServiceAccount
	monitor        *monitoringv1.PodMonitor
	rules          *monitoringv1.PrometheusRule
	check          *corev1.Pod
	migration      *batchv1.Job
	migrated       *corev1.ConfigMap
	bridge, tester corev1.Container
}

// render reads each rendered object strictly: an unknown field, one that is not there and must be, or a key that is there twice, is an error.
func render(t *testing.T, values map[string]any) *objects {
	t.Helper()
	files, err := template(t, values)
	require.NoError(t, err)
	o := &objects{}
	for name, text := range files {
		var kind struct{ APIVersion, Kind string }
		require.NoError(t, yaml.Unmarshal([]byte(text), &kind), name)
		object := kind.APIVersion + " " + kind.Kind
		assertInSchema(t, object, text)
		switch object {
		case "v1 ConfigMap":
			if strings.HasSuffix(name, "/migrate-config.yaml") {
				o.migrated = read[corev1.ConfigMap](t, text)
			} else {
				o.config = read[corev1.ConfigMap](t, text)
			}
		case "batch/v1 Job":
			o.migration = read[batchv1.Job](t, text)
		case "apps/v1 Deployment":
			o.deployment = read[appsv1.Deployment](t, text)
		case "policy/v1 PodDisruptionBudget":
			o.budget = read[policyv1.PodDisruptionBudget](t, text)
		case "networking.k8s.io/v1 NetworkPolicy":
			o.policy = read[networkingv1.NetworkPolicy](t, text)
		case "v1 Service":
			o.service = read[corev1.Service](t, text)
		case "v1 ServiceAccount":
			o.account = read[corev1.ServiceAccount](t, text)
		case "monitoring.coreos.com/v1 PodMonitor":
			o.monitor = read[monitoringv1.PodMonitor](t, text)
		case "monitoring.coreos.com/v1 PrometheusRule":
			o.rules = read[monitoringv1.PrometheusRule](t, text)
		case "v1 Pod":
			o.check = read[corev1.Pod](t, text)
		default:
			require.FailNow(t, "unknown object in "+name, text)
		}
	}
	require.Len(t, o.deployment.Spec.Template.Spec.Containers, 1)
	require.Len(t, o.check.Spec.Containers, 1)
	o.bridge, o.tester = o.deployment.Spec.Template.Spec.Containers[0], o.check.Spec.Containers[0]
	return o
}

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	object := new(T)
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), object), text)
	return object
}

func TestChartIsLintClean(t *testing.T) {
	t.Parallel()
	for _, file := range []string{minimal, everything} {
		for _, message := range lint.All(chartDir, values(t, file), "messaging", false).Messages {
			if message.Severity > support.InfoSev {
				t.Errorf("%s: %v", file, message)
			}
		}
	}
}

// TestTheLeast: what is there without being asked for.
func TestTheLeast(t *testing.T) {
	t.Parallel()
	o := render(t, values(t, minimal))
	assert.Nil(t, o.policy)
	assert.Nil(t, o.service)
	assert.Nil(t, o.monitor)
	assert.Nil(t, o.rules)
	assert.Equal(t, int32(2), *o.deployment.Spec.Replicas)
	assert.Equal(t, "ghcr.io/delaybridge/delaybridge:"+load(t).Metadata.AppVersion, o.bridge.Image)
	assert.Equal(t, 1, o.budget.Spec.MaxUnavailable.IntValue())
	assert.Equal(t, policyv1.AlwaysAllow, *o.budget.Spec.UnhealthyPodEvictionPolicy)
	assert.Equal(t, "delaybridge", o.deployment.Spec.Template.Spec.ServiceAccountName)
	assert.False(t, *o.account.AutomountServiceAccountToken)
	constraints := o.deployment.Spec.Template.Spec.TopologySpreadConstraints
	require.Len(t, constraints, 2)
	for _, constraint := range constraints {
		assert.Equal(t, corev1.ScheduleAnyway, constraint.WhenUnsatisfiable)
	}
}

// TestPods: what holds for the bridge's pods and that of the test, whatever the values are.
func TestPods(t *testing.T) {
	t.Parallel()
	for _, file := range []string{minimal, everything} {
		o := render(t, values(t, file))
		for _, pod := range []corev1.PodSpec{o.deployment.Spec.Template.Spec, o.check.Spec} {
			assert.False(t, *pod.AutomountServiceAccountToken)
			assert.False(t, *pod.EnableServiceLinks)
			assert.True(t, *pod.SecurityContext.RunAsNonRoot)
			assert.Equal(t, int64(65532), *pod.SecurityContext.RunAsUser, "the image's user")
			assert.Equal(t, int64(65532), *pod.SecurityContext.FSGroup, "who may read the secrets")
			assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
			container := pod.Containers[0]
			assert.False(t, *container.SecurityContext.AllowPrivilegeEscalation)
			assert.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
			assert.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop)
			assert.Empty(t, container.SecurityContext.Capabilities.Add)
			assert.NotEmpty(t, container.Resources.Requests)
			assert.NotEmpty(t, container.Resources.Limits.Memory().Value())
			assertMounted(t, pod)
		}
		assert.Equal(t, []string{"run", "--config", "/etc/delaybridge/bridge.yaml"}, o.bridge.Args)
		assert.Equal(t, []string{"check", "--config", "/etc/delaybridge/bridge.yaml"}, o.tester.Args)
		assert.Equal(t, "test", o.check.Annotations["helm.sh/hook"])
		assert.Equal(t, "/livez", o.bridge.LivenessProbe.HTTPGet.Path)
		assert.Equal(t, "/readyz", o.bridge.ReadinessProbe.HTTPGet.Path)
		assert.Equal(t, "metadata.name", variable(t, o.bridge, "DELAYBRIDGE__INSTANCE").ValueFrom.FieldRef.FieldPath)
		assertSelected(t, o)
	}
}

// assertMounted: what is mounted is a volume of the pod, at a place of its own.
func assertMounted(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	var volumes, mounted, paths []string
	for _, volume := range pod.Volumes {
		volumes = append(volumes, volume.Name)
		if volume.Secret != nil {
			assert.Equal(t, int32(0o440), *volume.Secret.DefaultMode, volume.Name)
		}
	}
	for _, mount := range pod.Containers[0].VolumeMounts {
		mounted, paths = append(mounted, mount.Name), append(paths, mount.MountPath)
		assert.True(t, mount.ReadOnly, mount.MountPath)
	}
	assert.ElementsMatch(t, volumes, mounted)
	slices.Sort(paths)
	for i, path := range paths[1:] {
		assert.False(t, strings.HasPrefix(path+"/", paths[i]+"/"), "%s is in %s, which is read-only", path, paths[i])
	}
}

// assertSelected: all that selects pods selects those of the bridge, and the policy alone that of the test.
func assertSelected(t *testing.T, o *objects) {
	t.Helper()
	selectors := []map[string]string{o.deployment.Spec.Selector.MatchLabels, o.budget.Spec.Selector.MatchLabels}
	for _, constraint := range o.deployment.Spec.Template.Spec.TopologySpreadConstraints {
		selectors = append(selectors, constraint.LabelSelector.MatchLabels)
	}
	if o.service != nil {
		selectors = append(selectors, o.service.Spec.Selector)
	}
	if o.monitor != nil {
		selectors = append(selectors, o.monitor.Spec.Selector.MatchLabels)
	}
	for _, selector := range selectors {
		assert.Subset(t, o.deployment.Spec.Template.Labels, selector)
		assert.NotSubset(t, o.check.Labels, selector, "the test's pod is no bridge")
	}
	if o.policy != nil {
		assert.Subset(t, o.deployment.Spec.Template.Labels, o.policy.Spec.PodSelector.MatchLabels)
		assert.Subset(t, o.check.Labels, o.policy.Spec.PodSelector.MatchLabels)
	}
}

func variable(t *testing.T, container corev1.Container, name string) corev1.EnvVar {
	t.Helper()
	at := slices.IndexFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == name })
	require.GreaterOrEqual(t, at, 0, name)
	return container.Env[at]
}

// bridgeConfig is what the bridge makes of the rendered configuration. Files that it names
// are those that the secrets would hold.
func bridgeConfig(t *testing.T, o *objects) *config.Config {
	t.Helper()
	secrets := t.TempDir()
	text := strings.ReplaceAll(o.config.Data["bridge.yaml"], "/run/secrets/", secrets+"/")
	for _, volume := range o.deployment.Spec.Template.Spec.Volumes {
		if volume.Secret == nil {
			continue
		}
		folder := secrets + "/" + volume.Secret.SecretName
		require.NoError(t, os.Mkdir(folder, 0o700))
		for key, content := range secretFiles {
			require.NoError(t, os.WriteFile(folder+"/"+key, []byte(content), 0o600))
		}
	}
	cfg, err := config.Parse([]byte(text), []string{"DELAYBRIDGE__INSTANCE=delaybridge-7d9f-x2x4z", "RABBITMQ_PASSWORD=secret"})
	require.NoError(t, err, text)
	return cfg
}

var secretFiles = map[string]string{
	"password": "secret", "token": "secret", "dsn": "postgres://bridge:secret@postgres:5432/shop", "tokens": tokens,
}
