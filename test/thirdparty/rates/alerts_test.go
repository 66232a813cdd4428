package rates

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRollingRestart: no alert fires while bridges are restarted one after the
// other under traffic, of an outbox too.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 8, outboxed)
	a := newAlarms(f)
	f.start("a")
	f.start("b")
	f.held("a", "b")
	f.ready("a")
	f.ready("b")
	for _, name := range []string{"a", "b"} {
		f.traffic(20, 2, 0)
		f.rowTraffic(10)
		a.silent(4)
		f.stops[name]()
		f.rowTraffic(10)
		a.silent(1)
		f.start(name)
		f.traffic(20, 2, 0)
		f.rowTraffic(10)
		f.held("a", "b")
		f.settle()
		a.silent(batch)
	}
}

// TestAlerts causes one fault after the other, and sees the alerts on it and no others.
func TestAlerts(t *testing.T) {
	t.Parallel()
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := calm(t, fault.with)
			fault.strike(a)
			a.fires(fault.fires)
		})
	}
}

// TestFewerInstances: a bridge that is gone, and whose target was taken away with it, is
// nobody's fault.
func TestFewerInstances(t *testing.T) {
	t.Parallel()
	a := calm(t, nil)
	a.start("b")
	a.held("a", "b")
	a.settle()
	a.silent(4)
	a.stops["b"]()
	a.held("a")
	delete(a.targets, "b")
	a.settle()
	a.silent(2 * batch)
}

// TestEveryAlertHasAFault: an alert that nobody has seen fire may be one that cannot.
func TestEveryAlertHasAFault(t *testing.T) {
	t.Parallel()
	var caused, known []string
	for _, fault := range faults {
		caused = append(caused, fault.fires...)
	}
	for _, rule := range alertRules(t) {
		known = append(known, rule.Alert)
	}
	slices.Sort(caused)
	assert.ElementsMatch(t, known, slices.Compact(caused))
}

// runbook is where the page of the alerts is.
const runbook = "https://github.com/delaybridge/delaybridge/blob/main/docs/alerts.md#"

// TestMetricsExist: the alerts and the dashboard ask for metrics that
// docs/operations.md has, and every alert says what it means, here and in docs/alerts.md.
func TestMetricsExist(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../../docs/operations.md")
	require.NoError(t, err)
	docs := string(content)
	page, err := os.ReadFile("../../../docs/alerts.md")
	require.NoError(t, err)
	var asked []string
	for _, group := range ruleGroups(t) {
		for _, rule := range group.Rules {
			asked = append(asked, rule.Expr)
		}
	}
	for _, rule := range alertRules(t) {
		assert.Contains(t, []string{"page", "ticket"}, rule.Labels["severity"], rule.Alert)
		assert.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		assert.NotEmpty(t, rule.Annotations["description"], rule.Alert)
		assert.Equal(t, runbook+strings.ToLower(rule.Alert), rule.Annotations["runbook_url"])
		assert.Contains(t, string(page), "\n## "+rule.Alert+"\n")
	}
	content, err = os.ReadFile("../../../deploy/grafana/delaybridge.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(content, &dashboard))
	fill := strings.NewReplacer("$__rate_interval", "1m", "$queue", ".*", "$cluster", ".*", "$namespace", ".*")
	for _, panel := range dashboard.Panels {
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			expr := fill.Replace(target.Expr)
			_, err := parser.ParseExpr(expr)
			require.NoError(t, err, panel.Title)
			asked = append(asked, expr)
		}
	}
	name := regexp.MustCompile(`delaybridge_[a-z_]+`)
	for _, expr := range asked {
		for _, metric := range name.FindAllString(expr, -1) {
			base := strings.TrimSuffix(strings.TrimSuffix(metric, "_bucket"), "_count")
			assert.Contains(t, docs, "`"+base+"`", expr)
		}
	}
}
