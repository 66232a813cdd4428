package rates

import (
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const alertsFile = "../../../deploy/prometheus/alerts.yml"

// batch is more scrapes than any alert waits for, but those that wait for hours.
const batch = 25

// alarms are the rules of deploy, evaluated at the scrapes at which their group's turn has come.
type alarms struct {
	*fleet
	*evaluation
}

func newAlarms(f *fleet) *alarms {
	f.t.Helper()
	return &alarms{f, newEvaluation(f.series)}
}

func alertRules(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	for _, group := range ruleGroups(t) {
		for _, rule := range group.Rules {
			if rule.Alert != "" {
				all = append(all, rule)
			}
		}
	}
	return all
}

func ruleGroups(t *testing.T) []rulefmt.RuleGroup {
	t.Helper()
	content, err := os.ReadFile(alertsFile)
	require.NoError(t, err)
	groups, errs := rulefmt.Parse(content, false, model.LegacyValidation)
	require.Empty(t, errs)
	return groups.Groups
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
		a.evaluate()
		for _, name := range a.firing() {
			fired[name] = true
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
