package rates

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/testenv"
	"github.com/delaybridge/delaybridge/internal/testenv/faultproxy"
)

const alertsFile = "../../deploy/prometheus/alerts.yml"

// alarms are the rules of deploy, evaluated at each scrape.
type alarms struct {
	*fleet

	rules []*rules.AlertingRule
	query rules.QueryFunc
}

func newAlarms(f *fleet) *alarms {
	a := &alarms{fleet: f, query: rules.EngineQueryFunc(f.engine, f)}
	for _, rule := range alertRules(f.t) {
		expr, err := parser.ParseExpr(rule.Expr)
		require.NoError(f.t, err, rule.Alert)
		a.rules = append(a.rules, rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), 0,
			labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler)))
	}
	return a
}

func alertRules(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	content, err := os.ReadFile(alertsFile)
	require.NoError(t, err)
	groups, errs := rulefmt.Parse(content, false, model.LegacyValidation)
	require.Empty(t, errs)
	for _, group := range groups.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

// scrapes scrapes so often and evaluates all rules each time, and returns which
// have fired meanwhile, by name.
func (a *alarms) scrapes(times int) []string {
	a.t.Helper()
	fired := map[string]bool{}
	for range times {
		a.scrape(a.addresses)
		for _, rule := range a.rules {
			_, err := rule.Eval(a.t.Context(), 0, a.now, a.query, &url.URL{}, 0)
			require.NoError(a.t, err, rule.Name())
			rule.ForEachActiveAlert(func(alert *rules.Alert) {
				if alert.State == rules.StateFiring {
					fired[rule.Name()] = true
				}
			})
		}
	}
	return slices.Sorted(maps.Keys(fired))
}

// fires scrapes until just these alerts have fired: a minute and more pass on the
// clock of the series for each second here.
func (a *alarms) fires(want ...string) {
	a.t.Helper()
	deadline := time.Now().Add(patience)
	var fired []string
	for len(fired) < len(want) && time.Now().Before(deadline) {
		a.settle()
		fired = slices.Compact(slices.Sorted(slices.Values(append(fired, a.scrapes(25)...))))
	}
	assert.Equal(a.t, want, fired)
}

// TestRollingRestart: no alert fires while bridges are restarted one after the
// other under traffic.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 8)
	a := newAlarms(f)
	f.start("a")
	f.start("b")
	f.held("a", "b")
	for _, name := range []string{"a", "b"} {
		f.traffic(20, 2, 0)
		assert.Empty(t, a.scrapes(4))
		f.stops[name]()
		assert.Empty(t, a.scrapes(1))
		f.start(name)
		f.traffic(20, 2, 0)
		f.held("a", "b")
		f.settle()
		assert.Empty(t, a.scrapes(8))
	}
}

// calm is a fleet of one bridge, about which no alert fires.
func calm(t *testing.T) (*fleet, *alarms) {
	t.Helper()
	f := newFleet(t, 2)
	a := newAlarms(f)
	f.start("a")
	f.held("a")
	f.settle()
	assert.Empty(t, a.scrapes(4))
	return f, a
}

// TestAlerts causes one fault after the other, and sees the alerts on it and no others.
func TestAlerts(t *testing.T) {
	t.Parallel()

	t.Run("dead letters", func(t *testing.T) {
		t.Parallel()
		f, a := calm(t)
		f.traffic(5, 0, 3)
		a.fires("DelaybridgeDeadLetters", "DelaybridgeDecodeErrors")
	})
	t.Run("a topic that nobody has made", func(t *testing.T) {
		t.Parallel()
		f, a := calm(t)
		_, err := f.client.Schedule(t.Context(), delay.Message{Topic: testenv.Name(t, "missing")}, delay.After(0))
		require.NoError(t, err)
		a.fires("DelaybridgeParked")
	})
	t.Run("a broker that is away", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, 2)
		proxy := f.behindProxy()
		a := newAlarms(f)
		f.start("a")
		f.held("a")
		f.traffic(5, 0, 0)
		f.settle()
		assert.Empty(t, a.scrapes(4))
		proxy.Refuse(true)
		proxy.Cut()
		_, err := f.client.Schedule(t.Context(), delay.Message{Topic: f.topic}, delay.At(time.Now().Add(-time.Hour)))
		require.NoError(t, err)
		a.fires("DelaybridgeLate", "DelaybridgeSinkDown")
	})
	t.Run("a budget that is used up", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, 2)
		f.more = ", budget: {bytes: 32KiB}"
		a := newAlarms(f)
		f.start("a")
		f.held("a")
		f.settle()
		assert.Empty(t, a.scrapes(4))
		require.Eventually(t, func() bool {
			_, err := f.client.Schedule(t.Context(), delay.Message{Topic: f.topic, Body: make([]byte, 500)}, delay.After(time.Hour))
			return errors.Is(err, delay.ErrFull)
		}, patience, time.Millisecond)
		a.fires("DelaybridgeFullSoon")
	})
	t.Run("paused and late", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, 2)
		a := newAlarms(f)
		f.start("a")
		f.held("a")
		_, err := f.queue.Admin().Pause(t.Context(), "")
		require.NoError(t, err)
		_, err = f.client.Schedule(t.Context(), delay.Message{Topic: f.topic}, delay.At(time.Now().Add(-time.Hour)))
		require.NoError(t, err)
		f.settle()
		f.settle()
		assert.Empty(t, a.scrapes(40), "it is meant to be late")
		assert.Equal(t, []string{"DelaybridgePaused"}, a.scrapes(1450), "for six hours")
	})
	t.Run("a canary that does not arrive", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, 2)
		f.more = ", canary: {topic: " + f.topic + ", every: 1s}"
		a := newAlarms(f)
		f.start("a")
		f.held("a")
		f.settle()
		assert.Empty(t, a.scrapes(4))
		f.dropStream()
		a.fires("DelaybridgeCanary", "DelaybridgeParked")
	})
	t.Run("no bridge", func(t *testing.T) {
		t.Parallel()
		f, a := calm(t)
		f.stops["a"]()
		a.fires("DelaybridgeDown")
	})
	t.Run("shards that nobody polls", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, 4)
		a := newAlarms(f)
		f.start("a")
		f.start("b")
		f.held("a", "b")
		f.settle()
		assert.Empty(t, a.scrapes(4))
		f.hidden("b") // As where it hangs and is not scraped: its lease is what others wait for.
		a.fires("DelaybridgeShardsWithoutHolder")
	})
}

// behindProxy leads the bridges to the broker through a proxy.
func (f *fleet) behindProxy() *faultproxy.Proxy {
	f.t.Helper()
	target, err := url.Parse(f.broker)
	require.NoError(f.t, err)
	proxy, err := faultproxy.New(context.WithoutCancel(f.t.Context()), target.Host)
	require.NoError(f.t, err)
	f.t.Cleanup(proxy.Close)
	f.broker = "nats://" + proxy.Addr()
	return proxy
}

// hidden is scraped no more.
func (f *fleet) hidden(name string) { delete(f.addresses, name) }

// TestMetricsExist: the alerts and the dashboard ask for metrics that
// docs/operations.md has, and every alert is documented there.
func TestMetricsExist(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	docs := string(content)
	var asked []string
	for _, rule := range alertRules(t) {
		asked = append(asked, rule.Expr)
		assert.Contains(t, []string{"page", "ticket"}, rule.Labels["severity"], rule.Alert)
		assert.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		assert.NotEmpty(t, rule.Annotations["description"], rule.Alert)
	}
	content, err = os.ReadFile("../../deploy/grafana/delaybridge.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(content, &dashboard))
	fill := strings.NewReplacer("$__rate_interval", "1m", "$queue", ".*")
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
			base := cmp.Or(strings.TrimSuffix(metric, "_bucket"), metric)
			assert.Contains(t, docs, "`"+base+"`", expr)
		}
	}
}
