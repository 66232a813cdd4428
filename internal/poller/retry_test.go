package poller

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// TestARetryKeepsItsPromise refuses a message once: what is published in the end
// tells when it was promised, and is late since then.
func TestARetryKeepsItsPromise(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []string
		var promised time.Time
		var reports []sinks.Class
		var latenesses []time.Duration
		b := setup(t, func(config *Config, b *bench) {
			config.Hooks.OnPublished = func(m *message.ClaimedMessage, began time.Time, report *sinks.Report, late time.Duration) {
				assert.Equal(t, "m", m.ID)
				assert.Equal(t, len(reports), m.Attempts.Begun)
				assert.False(t, report.At.Before(began))
				reports, latenesses = append(reports, report.Class), append(latenesses, late)
			}
			promised = b.store.now()
			b.sink.behave = func(_ context.Context, batch []message.Message) []sinks.Outcome {
				for _, h := range batch[0].PublishedHeaders() {
					if h.Name == message.HeaderDueAt {
						told = append(told, h.Value)
					}
				}
				if len(told) == 1 {
					return all(batch, sinks.Failed(sinks.Retryable, sinks.ReasonTopicMissing, errBroker))
				}
				return all(batch, acked)
			}
			b.store.add(due("m", promised))
		})
		b.pass(10 * time.Second)
		want := promised.UTC().Format("2006-01-02T15:04:05.000Z")
		assert.Equal(t, []string{want, want}, told)
		if assert.Len(t, b.observer.latenesses, 1) {
			assert.GreaterOrEqual(t, b.observer.latenesses[0], time.Second/2, "the wait for the retry counts")
		}
		assert.Equal(t, []sinks.Class{sinks.Retryable, sinks.Acknowledged}, reports, "refusals are told, too")
		assert.Equal(t, b.observer.latenesses[0], latenesses[1])
	})
}
