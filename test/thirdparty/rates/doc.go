// Package rates checks the bridge's counters with Prometheus' own engine: what
// rate() and increase() make of the series that are scraped from instances that
// come and go, while shards change hands and their number changes. And it has the
// alerts of deploy/prometheus fire on real faults, and be silent else.
//
// It is a module of its own, so that Prometheus is in nobody's dependencies.
package rates
