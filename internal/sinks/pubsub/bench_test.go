//go:build unix

package pubsub_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

const (
	benchBatches = 10 // of 500 messages
	benchCallers = 4
)

// BenchmarkPublish publishes 5,000 messages of 256 bytes in batches of 500, four at a time, by the sink and
// by net/http and encoding/json alone, in requests of fifty, one after the other.
//
//	go test -run '^$' -bench Publish -benchtime 3x ./internal/sinks/pubsub
func BenchmarkPublish(b *testing.B) {
	broker := newBroker(b, testenv.PubSub(b))
	for name, key := range sinktest.Keys {
		b.Run(name, func(b *testing.B) {
			sink := openSink(b, broker.address, nil)
			sinktest.Beside(b, benchCallers, func() [][]message.Message {
				topic := testenv.Name(b, "bench")
				broker.do(b, http.MethodPut, "topics/"+topic, map[string]any{}, nil) // No subscription keeps them.
				return sinktest.Batches(sinktest.NewMessage(b, topic, ""), benchBatches, key)
			}, sinktest.Through(b, sink), sinktest.Side{Name: "client", Publish: func(batch []message.Message) {
				for some := range slices.Chunk(batch, 50) {
					var list []map[string]any
					for i := range some {
						attributes := map[string]string{}
						for _, header := range some[i].PublishedHeaders() {
							attributes[header.Name] = header.Value
						}
						list = append(list, map[string]any{"data": some[i].Body, "attributes": attributes, "orderingKey": some[i].Key})
					}
					broker.do(b, http.MethodPost, "topics/"+batch[0].Topic+":publish", map[string]any{"messages": list}, nil)
				}
			}})
		})
	}
}
