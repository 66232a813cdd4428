package rates

import (
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const alertsFile = "../../../deploy/prometheus/alerts.yml"

// batch is more scrapes than any alert waits for, but those that wait for hours.
const batch = 25

// alarms are the rules of deploy, evaluated at each scrape.
type alarms struct {
	*fleet

	rules []*rules.AlertingRule
	query rules.QueryFunc
}

func newAlarms(f *fleet) *alarms {
	f.t.Helper()
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

// calm are the alarms of a fleet of one bridge, about which none fires. Beside it is
// another deployment of the same names, which stays calm whatever happens.
func calm(t *testing.T, with func(*fleet)) *alarms {
	t.Helper()
	f := newFleet(t, 4, with)
	a := newAlarms(f)
	f.neighbour = map[string]sample{}
	f.start("a")
	f.held("a")
	f.ready("a")
	f.settle()
	a.silent(4)
	a.freeze()
	return a
}

// scrapes scrapes so often and evaluates all rules each time, and returns which
// have fired meanwhile, by name; those of another deployment are told so.
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
					name := rule.Name()
					if of := alert.Labels.Get("namespace"); of != ours {
						name += " of namespace " + strconv.Quote(of)
					}
					fired[name] = true
				}
			})
		}
	}
	return slices.Sorted(maps.Keys(fired))
}

// silent scrapes so often, and no alert fires.
func (a *alarms) silent(times int) {
	a.t.Helper()
	assert.Empty(a.t, a.scrapes(times))
}

// fires scrapes until just these alerts have fired, by name: minutes pass on the clock
// of the series for each second here.
func (a *alarms) fires(want []string) {
	a.t.Helper()
	var fired []string
	for deadline := time.Now().Add(patience); ; {
		for range 4 { // What goes on is seen to go on: rates look back for 20 scrapes.
			a.settle()
			fired = slices.Compact(slices.Sorted(slices.Values(append(fired, a.scrapes(15)...))))
		}
		if len(fired) >= len(want) || time.Now().After(deadline) {
			break
		}
	}
	assert.ElementsMatch(a.t, want, fired)
}
