package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	// knownFor is how long a topic's partitions are believed; a request that finds them
	// changed makes the sink ask again at once.
	knownFor = 30 * time.Second
	// doubtedFor is how long a missing topic or leader is believed to be missing.
	doubtedFor = 500 * time.Millisecond
	// sweepAt is how many topics are kept before outdated ones are dropped.
	sweepAt = 1024
)

// topics knows the leaders of the partitions of the topics in use.
type topics struct {
	brokers *brokers
	seeds   []string
	logger  *slog.Logger
	asking  chan struct{} // held by the one that asks

	mu       sync.Mutex
	byName   map[string]*topic
	sweepAt  int
	learned  []string // addresses, the last one that answered first
	failedAt time.Time
	failure  error
}

// topic is what is known about one topic. Only stale ever changes.
type topic struct {
	leaders []string // address by partition; "" if there is none
	// numbers are those of the partitions, also while the topic is missing if it
	// had any before: the routes of its messages stay what they were.
	numbers []int
	err     error // what the brokers say instead
	until   time.Time
	stale   bool // proven wrong; guarded by topics.mu
}

func newTopics(pool *brokers, seeds []string, logger *slog.Logger) *topics {
	return &topics{
		brokers: pool, seeds: seeds, logger: logger,
		asking: make(chan struct{}, 1), byName: map[string]*topic{}, sweepAt: sweepAt,
	}
}

// fresh returns what is known of a topic, nil if it must be asked.
func (t *topics) fresh(name string) *topic {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.byName[name]
	if known == nil || known.stale || time.Now().After(known.until) {
		return nil
	}
	return known
}

// partitions lists the partitions of a topic as far as they are known, without asking.
func (t *topics) partitions(name string) []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.byName[name]; known != nil {
		return known.numbers
	}
	return nil
}

// leader returns the address of a partition's leader.
func (t *topics) leader(ctx context.Context, id partition) (string, error) {
	known := t.fresh(id.topic)
	if known == nil {
		var err error
		if known, err = t.afterRefresh(id.topic, t.refresh(ctx, []string{id.topic})); err != nil {
			return "", err
		}
	}
	switch {
	case known.err != nil:
		return "", known.err
	case id.number >= len(known.leaders) || known.leaders[id.number] == "":
		return "", &notStoredError{fmt.Errorf("partition %d of topic %q: %w", id.number, id.topic, kafka.LeaderNotAvailable)}
	default:
		return known.leaders[id.number], nil
	}
}

// doubt makes the sink ask for the topic again before it is used.
func (t *topics) doubt(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.byName[name]; known != nil {
		known.stale = true
	}
}

// afterRefresh returns what is known of a topic after a refresh that ended with err.
// If the brokers did not answer, what was known holds on, unless proven wrong.
func (t *topics) afterRefresh(name string, err error) (*topic, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.byName[name]
	switch {
	case known != nil && (err == nil || !known.stale):
		return known, nil
	case err == nil:
		return nil, &notStoredError{fmt.Errorf("topic %q: %w", name, kafka.LeaderNotAvailable)}
	default:
		return nil, err
	}
}

// refresh asks for the names that are not fresh. One call asks at a time, and
// calls that waited for it share a failure, so that a dead cluster is asked once.
func (t *topics) refresh(ctx context.Context, names []string) error {
	began := time.Now()
	select {
	case t.asking <- struct{}{}:
	case <-ctx.Done():
		return &notStoredError{fmt.Errorf("wait for kafka metadata: %w", ctx.Err())}
	}
	defer func() { <-t.asking }()
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return t.fresh(name) != nil })
	if len(names) == 0 {
		return nil
	}
	if err := t.failedSince(began); err != nil {
		return err
	}
	response, err := t.askAny(ctx, names)
	if err != nil {
		t.noteFailure(err)
		return err
	}
	t.store(response)
	return nil
}

func (t *topics) failedSince(began time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failedAt.After(began) {
		return t.failure
	}
	return nil
}

func (t *topics) noteFailure(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failedAt, t.failure = time.Now(), err
}

// askAny asks one broker after the other until one answers. If all were asked in
// vain, its error is a [deafError].
func (t *topics) askAny(ctx context.Context, names []string) (*kafka.MetadataResponse, error) {
	var failures []error
	for _, address := range t.addresses() {
		if err := ctx.Err(); err != nil {
			return nil, &notStoredError{fmt.Errorf("ask for kafka metadata: %w", errors.Join(append(failures, err)...))}
		}
		response, err := t.askOne(ctx, address, names)
		if err == nil {
			t.learn(address, response)
			return response, nil
		}
		t.logger.DebugContext(ctx, "kafka metadata not answered", "event", "sink_metadata", "broker", address, "err", err)
		failures = append(failures, err)
	}
	return nil, &notStoredError{&deafError{fmt.Errorf("ask for kafka metadata: %w", errors.Join(failures...))}}
}

func (t *topics) askOne(ctx context.Context, address string, names []string) (*kafka.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, t.brokers.opener.config.askTimeout())
	defer cancel()
	conn, err := t.brokers.acquire(ctx, address)
	if err != nil {
		return nil, err
	}
	defer t.brokers.release(conn)
	return conn.client.Metadata(ctx, &kafka.MetadataRequest{Topics: names})
}

// addresses lists all that may know the cluster, the most promising first.
func (t *topics) addresses() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	addresses := slices.Clone(t.learned)
	for _, seed := range t.seeds {
		if !slices.Contains(addresses, seed) {
			addresses = append(addresses, seed)
		}
	}
	return addresses
}

func (t *topics) learn(answered string, response *kafka.MetadataResponse) {
	known := []string{answered}
	for _, broker := range response.Brokers {
		if address := addressOf(broker); address != "" && address != answered {
			known = append(known, address)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learned = known
}

func (t *topics) store(response *kafka.MetadataResponse) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, answer := range response.Topics {
		t.byName[answer.Name] = newTopic(answer, t.byName[answer.Name], now)
	}
	// Producers name the topics, so their number is not ours to choose.
	if len(t.byName) > t.sweepAt {
		maps.DeleteFunc(t.byName, func(_ string, known *topic) bool { return now.After(known.until) })
		t.sweepAt = max(sweepAt, 2*len(t.byName))
	}
}

// newTopic reads the brokers' answer, given what was known before, if anything.
func newTopic(answer kafka.Topic, before *topic, now time.Time) *topic {
	known := &topic{until: now.Add(knownFor), err: answer.Error, leaders: make([]string, len(answer.Partitions))}
	for _, partition := range answer.Partitions {
		if partition.ID < len(known.leaders) {
			known.leaders[partition.ID] = addressOf(partition.Leader)
		}
	}
	for number := range known.leaders {
		known.numbers = append(known.numbers, number)
	}
	if before != nil && len(known.numbers) == 0 {
		known.numbers = before.numbers
	}
	if known.err == nil && len(known.leaders) == 0 {
		known.err = kafka.LeaderNotAvailable
	}
	if known.err != nil {
		known.err = &notStoredError{fmt.Errorf("topic %q: %w", answer.Name, known.err)}
	}
	if known.err != nil || slices.Contains(known.leaders, "") {
		known.until = now.Add(doubtedFor)
	}
	return known
}

func addressOf(broker kafka.Broker) string {
	if broker.Host == "" {
		return ""
	}
	return net.JoinHostPort(broker.Host, strconv.Itoa(broker.Port))
}
