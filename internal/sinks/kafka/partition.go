package kafka

import (
	"math/rand/v2"

	"github.com/segmentio/kafka-go"
)

// java chooses as the default partitioner of Kafka's own client does, so that a
// Key's delayed messages share the partition with those that were published directly.
var java = kafka.Murmur2Balancer{Consistent: true}

// partitioner places the messages that one call brings to one topic.
type partitioner struct {
	partitions []int
	free       int // where messages without a Key go
}

// newPartitioner chooses one partition for all messages without a Key: they have
// no order to keep, and one request is cheaper than one for each partition. The next call
// chooses again, so the load spreads, and a partition without a leader is passed over.
func newPartitioner(leaders []string) *partitioner {
	p := &partitioner{partitions: make([]int, len(leaders))}
	led := make([]int, 0, len(leaders))
	for i, leader := range leaders {
		p.partitions[i] = i
		if leader != "" {
			led = append(led, i)
		}
	}
	if len(led) == 0 {
		led = p.partitions
	}
	p.free = led[rand.IntN(len(led))]
	return p
}

func (p *partitioner) choose(key string) int {
	if key == "" {
		return p.free
	}
	return java.Balance(kafka.Message{Key: []byte(key)}, p.partitions...)
}
