package kafka

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// answer is how a fake broker answers a request for messages.
type answer struct {
	code kafka.Error
	// appended is set where the code comes after the leader has appended: the answer has an offset then.
	appended bool
	// refused are the positions of the records that are to blame.
	refused []int32
	// hangUp closes the connection instead.
	hangUp   bool
	throttle time.Duration
}

// fake is a broker that answers as it is told, for what a real one does seldom.
// It knows every topic but those called "missing".
type fake struct {
	t        *testing.T
	listener net.Listener
	serving  sync.WaitGroup
	// produced gets the ids of the messages of each request, and its answer is given.
	produced func(ids []string) answer
	greeted  func() // is called for each new connection, if it is not nil

	mu         sync.Mutex
	leader     string // address
	partitions int32  // of every topic
	missing    string // a topic that is not there
	controller int32  // 1 is this broker; others are unknown
	asked      int    // metadata requests
	requests   [][]string
	places     []partition // of the requests
	conns      []net.Conn
	open       int // connections that neither side has closed
}

func newFake(t *testing.T, produced func(ids []string) answer) *fake {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fake{t: t, listener: listener, produced: produced, leader: listener.Addr().String(), partitions: 1, missing: "missing", controller: 1}
	f.serving.Go(f.accept)
	t.Cleanup(f.stop)
	return f
}

// always gives one answer to all.
func always(a answer) func([]string) answer { return func([]string) answer { return a } }

func (f *fake) sink(t testing.TB) *Sink {
	t.Helper()
	return newSink(t, Config{Brokers: []string{f.listener.Addr().String()}})
}

func (f *fake) seen() [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([][]string(nil), f.requests...)
}

// last is where the last request went to.
func (f *fake) last() partition {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.places[len(f.places)-1]
}

func (f *fake) lose(topic string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing = topic
}

func (f *fake) timesAsked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *fake) openConnections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

func (f *fake) elect(controller int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.controller = controller
}

func (f *fake) lead(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leader = address
}

func (f *fake) stop() {
	_ = f.listener.Close()
	f.mu.Lock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.mu.Unlock()
	f.serving.Wait()
}

func (f *fake) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, conn)
		f.open++
		f.mu.Unlock()
		f.serving.Go(func() {
			f.serve(conn)
			_ = conn.Close()
			f.mu.Lock()
			defer f.mu.Unlock()
			f.open--
		})
	}
}

func (f *fake) serve(conn net.Conn) {
	for {
		version, id, _, request, err := protocol.ReadRequest(conn)
		if err != nil {
			return
		}
		var response protocol.Message
		switch r := request.(type) {
		case *apiversions.Request:
			if f.greeted != nil {
				f.greeted()
			}
			response = &apiversions.Response{ApiKeys: []apiversions.ApiKeyResponse{
				{ApiKey: int16(protocol.Produce), MaxVersion: 8}, {ApiKey: int16(protocol.Metadata), MaxVersion: 8},
			}}
		case *metadata.Request:
			response = f.metadata(r)
		case *produce.Request:
			if response = f.produce(r); response == nil {
				return
			}
		}
		if protocol.WriteResponse(conn, version, id, response) != nil {
			return
		}
	}
}

func (f *fake) metadata(request *metadata.Request) *metadata.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(request.TopicNames) > 0 {
		f.asked++
	}
	host, port, _ := net.SplitHostPort(f.leader)
	number, _ := strconv.Atoi(port)
	response := &metadata.Response{ControllerID: f.controller, Brokers: []metadata.ResponseBroker{{NodeID: 1, Host: host, Port: int32(number)}}}
	for _, name := range request.TopicNames {
		if name == f.missing {
			response.Topics = append(response.Topics, metadata.ResponseTopic{Name: name, ErrorCode: int16(kafka.UnknownTopicOrPartition)})
			continue
		}
		topic := metadata.ResponseTopic{Name: name}
		for number := range f.partitions {
			topic.Partitions = append(topic.Partitions, metadata.ResponsePartition{PartitionIndex: number, LeaderID: 1})
		}
		response.Topics = append(response.Topics, topic)
	}
	return response
}

func (f *fake) produce(request *produce.Request) protocol.Message {
	place := request.Topics[0].Partitions[0]
	var ids []string
	for {
		record, err := place.RecordSet.Records.ReadRecord()
		if err != nil {
			break
		}
		for _, header := range record.Headers {
			if header.Key == message.HeaderID {
				ids = append(ids, string(header.Value))
			}
		}
	}
	f.mu.Lock()
	f.requests = append(f.requests, ids)
	f.places = append(f.places, partition{request.Topics[0].Topic, int(place.Partition)})
	f.mu.Unlock()
	a := f.produced(ids)
	if a.hangUp {
		return nil
	}
	answer := produce.ResponsePartition{Partition: place.Partition, ErrorCode: int16(a.code), BaseOffset: 1}
	if a.code != 0 && !a.appended {
		answer.BaseOffset = -1
	}
	for _, position := range a.refused {
		answer.RecordErrors = append(answer.RecordErrors, produce.ResponseError{BatchIndex: position})
	}
	return &produce.Response{ThrottleTimeMs: int32(a.throttle.Milliseconds()), Topics: []produce.ResponseTopic{{
		Topic: request.Topics[0].Topic, Partitions: []produce.ResponsePartition{answer},
	}}}
}

// ids lists the ids of messages.
func ids(batch []message.Message) []string {
	list := make([]string, len(batch))
	for i := range batch {
		list[i] = batch[i].ID
	}
	return list
}

// gate lets a test hold a request at the broker.
type gate struct {
	entered chan struct{} // gets a value for each request
	leave   chan struct{} // each request takes a value, or its closing
}

func newGate() *gate {
	return &gate{entered: make(chan struct{}, 100), leave: make(chan struct{})}
}

func (g *gate) pass(ctx context.Context) {
	g.entered <- struct{}{}
	select {
	case <-g.leave:
	case <-ctx.Done():
	}
}
