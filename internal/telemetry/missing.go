package telemetry

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// missingMax bounds the topics that are shown, as producers choose their names.
	missingMax = 100
	// missingFor is how long a topic is shown after it was last missed.
	missingFor = 5 * time.Minute
	// otherTopics stands for all topics of a sink beyond the bound.
	otherTopics = "_other"
)

var missingDesc = prometheus.NewDesc(namespace+"_sink_missing",
	"1 for each topic that did not exist at the broker in the last five minutes.", []string{"sink", "topic"}, nil)

// missingTopics is the collector of the topics that brokers do not have.
type missingTopics struct {
	now  func() time.Time
	mu   sync.Mutex
	seen map[missingTopic]time.Time
}

type missingTopic struct{ sink, topic string }

func newMissingTopics(now func() time.Time) *missingTopics {
	return &missingTopics{now: now, seen: map[missingTopic]time.Time{}}
}

func (m *missingTopics) note(sink, topic string) {
	key := missingTopic{sink, strings.ToValidUTF8(topic, "?")}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.seen[key]; !known && len(m.seen) >= missingMax {
		// Forgetting costs a walk over all, so only when there is no room.
		if m.forget(); len(m.seen) >= missingMax {
			key.topic = otherTopics
		}
	}
	m.seen[key] = m.now()
}

func (m *missingTopics) forget() {
	oldest := m.now().Add(-missingFor)
	for key, at := range m.seen {
		if at.Before(oldest) {
			delete(m.seen, key)
		}
	}
}

// Describe implements [prometheus.Collector].
func (m *missingTopics) Describe(ch chan<- *prometheus.Desc) { ch <- missingDesc }

// Collect implements [prometheus.Collector].
func (m *missingTopics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
	for key := range m.seen {
		ch <- prometheus.MustNewConstMetric(missingDesc, prometheus.GaugeValue, 1, key.sink, key.topic)
	}
}
