package kafka

import (
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

// partition names one partition of a topic.
type partition struct {
	topic  string
	number int
}

func (p partition) route() sinks.Route {
	return sinks.Route(p.topic + "/" + strconv.Itoa(p.number))
}

// java chooses as the default partitioner of Kafka's own client does, so that a
// Key's delayed messages share the partition with those that were published directly.
var java = kafka.Murmur2Balancer{Consistent: true}

// partitionOf is the partition of a Key, of those numbered so.
func partitionOf(key string, numbers []int) int {
	return java.Balance(kafka.Message{Key: []byte(key)}, numbers...)
}

const (
	// avoidFor is how long messages without a Key avoid a partition after a failure.
	avoidFor = 5 * time.Second
	// stuckAfter is how long a request may take before messages without a Key
	// avoid its partition.
	stuckAfter = time.Second
)

// choose picks a partition for messages without a Key: any that works, and
// another one each time, so that the load spreads. One that has no leader, failed
// a short while ago or does not answer is passed over, if there is any other.
func (s *Sink) choose(topic string, leaders []string) int {
	var led, healthy, all []int
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for number, leader := range leaders {
		all = append(all, number)
		if leader == "" {
			continue
		}
		led = append(led, number)
		id := partition{topic, number}
		if !s.failures.recent(id, now) && !s.senders[id].stuck(now) {
			healthy = append(healthy, number)
		}
	}
	for _, numbers := range [][]int{healthy, led} {
		if len(numbers) > 0 {
			return numbers[rand.IntN(len(numbers))]
		}
	}
	return all[rand.IntN(len(all))]
}

// failures remembers the partitions of which the last request failed.
type failures struct {
	mu sync.Mutex
	at map[partition]time.Time
}

// keptFailures is how many are kept before those that no longer count are dropped.
const keptFailures = 1024

// note says how a request ended.
func (f *failures) note(id partition, failed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !failed {
		delete(f.at, id)
		return
	}
	now := time.Now()
	if len(f.at) >= keptFailures {
		maps.DeleteFunc(f.at, func(_ partition, at time.Time) bool { return now.Sub(at) >= avoidFor })
	}
	f.at[id] = now
}

// recent reports whether the partition's last request failed a short while ago.
func (f *failures) recent(id partition, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, failed := f.at[id]
	return failed && now.Sub(at) < avoidFor
}
