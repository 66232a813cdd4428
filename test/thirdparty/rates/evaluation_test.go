package rates

import (
	"log/slog"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/require"
)

// evaluation has the rules of deploy look at series, as a Prometheus does: group by group, in
// order, and what a rule records is there for the next one.
type evaluation struct {
	of     *series
	groups []*ruleGroup
	alerts []*rules.AlertingRule
}

// ruleGroup are rules that are evaluated together.
type ruleGroup struct {
	every time.Duration
	last  time.Time
	rules []rules.Rule
}

func newEvaluation(of *series) *evaluation {
	of.t.Helper()
	e := &evaluation{of: of}
	for _, group := range ruleGroups(of.t) {
		g := &ruleGroup{every: time.Duration(group.Interval)}
		for _, rule := range group.Rules {
			expr, err := parser.ParseExpr(rule.Expr)
			require.NoError(of.t, err, rule.Alert+rule.Record)
			if rule.Record != "" {
				g.rules = append(g.rules, rules.NewRecordingRule(rule.Record, expr, labels.FromMap(rule.Labels)))
				continue
			}
			alert := rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), 0,
				labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
			g.rules, e.alerts = append(g.rules, alert), append(e.alerts, alert)
		}
		e.groups = append(e.groups, g)
	}
	return e
}

// evaluate evaluates the groups whose turn has come.
func (e *evaluation) evaluate() {
	e.of.t.Helper()
	query := rules.EngineQueryFunc(e.of.engine, e.of)
	for _, group := range e.groups {
		if e.of.now.Sub(group.last) < group.every {
			continue
		}
		group.last = e.of.now
		for _, rule := range group.rules {
			found, err := rule.Eval(e.of.t.Context(), 0, e.of.now, query, &url.URL{}, 0)
			require.NoError(e.of.t, err, rule.Name())
			if _, isAlert := rule.(*rules.AlertingRule); isAlert {
				continue
			}
			recorded := map[string]bool{}
			for _, one := range found {
				recorded[e.of.record(one.Metric, one.F)] = true
			}
			e.of.ended(rule.Name(), recorded)
		}
	}
}

// firing are the alerts that fire now, by name; those of another deployment are told so.
func (e *evaluation) firing() (names []string) {
	for _, rule := range e.alerts {
		rule.ForEachActiveAlert(func(alert *rules.Alert) {
			if alert.State == rules.StateFiring {
				name := rule.Name()
				if of := alert.Labels.Get("namespace"); of != ours {
					name += " of namespace " + strconv.Quote(of)
				}
				names = append(names, name)
			}
		})
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// record adds what a rule has found.
func (s *series) record(of labels.Labels, n float64) (key string) {
	key = s.keep(of)
	s.recorded[key] = true
	s.values[key] = append(s.values[key], sample{s.now.UnixMilli(), n})
	return key
}

// ended ends the series of a rule that it has not recorded now, as Prometheus does.
func (s *series) ended(rule string, recorded map[string]bool) {
	for _, key := range s.names[rule] {
		values := s.values[key]
		if !recorded[key] && !value.IsStaleNaN(values[len(values)-1].F()) {
			s.values[key] = append(values, sample{s.now.UnixMilli(), math.Float64frombits(value.StaleNaN)})
		}
	}
}
