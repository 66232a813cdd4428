package config

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// Inlet is a topic of a broker whose messages say what to do.
type Inlet struct {
	Sink  string `yaml:"sink" required:"true" doc:"Name of the sink whose broker it is: kafka, nats or rabbitmq."`
	From  From   `yaml:"from" short:"topic" doc:"What is consumed: a Kafka topic, a RabbitMQ queue, or for NATS a stream and a subject."`
	Queue string `yaml:"queue" required:"true" doc:"Name of the queue that the messages are for."`
	Topic string `yaml:"topic" doc:"Where a message is published that has no delay-topic. Default: on RabbitMQ the routing key that it was published with; else it is refused."`
	// Replies and Dead are topics of the same broker.
	Replies string `yaml:"replies" doc:"Topic of that broker that gets an answer for each message. Default: nobody is answered."`
	Dead    string `yaml:"dead" doc:"Topic of that broker that gets what cannot be understood. Default: it is counted, logged and dropped."`
	// Remember is bounded below by what a late run of a script may take.
	Remember time.Duration `yaml:"remember" default:"10m" min:"1m" max:"24h" doc:"How long a message that the broker delivers again has no second effect. Until then it takes about 250 bytes in Redis."`
}

// From says what an inlet consumes.
type From struct {
	Topic   string `yaml:"topic" doc:"The Kafka topic, or the RabbitMQ queue. from: NAME is the same as from: {topic: NAME}."`
	Stream  string `yaml:"stream" doc:"NATS: the stream."`
	Subject string `yaml:"subject" doc:"NATS: the subject in it; it may have wildcards."`
}

// Name is the topic, queue or subject.
func (f From) Name() string {
	if f.Subject != "" {
		return f.Subject
	}
	return f.Topic
}

// InletGroup is the name of the consumer group, or durable, of an inlet.
func InletGroup(name string) string { return "delaybridge-" + name }

func (c checker) inlets() {
	for _, name := range slices.Sorted(maps.Keys(c.config.Inlets)) {
		c.inlet("inlets."+name, name, c.config.Inlets[name])
	}
}

func (c checker) inlet(path, name string, inlet Inlet) {
	sink, hasSink := c.config.Sinks[inlet.Sink]
	queue, hasQueue := c.config.Queues[inlet.Queue]
	if !hasSink && !c.reported(path+".sink") && !c.reported("sinks."+inlet.Sink) {
		c.add(path+".sink", "%q is no sink, there are: %s", inlet.Sink, strings.Join(slices.Sorted(maps.Keys(c.config.Sinks)), ", "))
	}
	if !hasQueue && !c.reported(path+".queue") && !c.reported("queues."+inlet.Queue) {
		c.add(path+".queue", "%q is no queue of this file, there are: %s", inlet.Queue, strings.Join(slices.Sorted(maps.Keys(c.config.Queues)), ", "))
	}
	if hasSink && !c.reported("sinks."+inlet.Sink) {
		c.from(path, sink.Type, inlet)
		for key, topic := range map[string]string{"replies": inlet.Replies, "dead": inlet.Dead} {
			if topic == "" {
				continue
			}
			if err := message.CheckTopic(sink.Type, topic); err != nil {
				c.add(path+"."+key, "%v", err)
			}
			if topic == inlet.From.Name() {
				c.add(path+"."+key, "%q is what the inlet consumes", topic)
			}
		}
	}
	if hasQueue && inlet.Topic != "" {
		if err := message.CheckTopic(c.config.Sinks[queue.Sink].Type, inlet.Topic); err != nil {
			c.add(path+".topic", "%v", err)
		} else if queue.Sink == inlet.Sink && inlet.Topic == inlet.From.Name() {
			c.add(path+".topic", "%q is what the inlet consumes, so its messages would come back", inlet.Topic)
		}
	}
	for _, other := range slices.Sorted(maps.Keys(c.config.Queues)) {
		topic := c.config.CompensationTopic(other)
		if topic != "" && InletGroup(name) == source.Group(c.config.Prefix, other) {
			c.add(path, "its group %s is that of the compensations of queue %s, name it otherwise", InletGroup(name), other)
		}
	}
}

// from checks what is consumed, by the kind of broker.
func (c checker) from(path string, sink message.SinkType, inlet Inlet) {
	path += ".from"
	if c.reported(path) {
		return
	}
	from, isNATS := inlet.From, false
	switch sink {
	case message.Kafka, message.RabbitMQ:
	case message.NATS:
		isNATS = true
	default:
		c.add(strings.TrimSuffix(path, ".from")+".sink", "%q is a sink of type %s, an inlet needs kafka, nats or rabbitmq", inlet.Sink, sink)
		return
	}
	switch {
	case isNATS && (from.Stream == "" || from.Subject == "" || from.Topic != ""):
		c.add(path, "give {stream: NAME, subject: NAME} for a sink of type %s", sink)
	case isNATS:
		if strings.ContainsAny(from.Stream, " .*>/\\\t\r\n") {
			c.add(path+".stream", "%q is no name of a stream", from.Stream)
		}
		if err := message.CheckTopic(sink, strings.NewReplacer("*", "x", ">", "x").Replace(from.Subject)); err != nil {
			c.add(path+".subject", "%v", err)
		}
	case from.Topic == "" || from.Stream != "" || from.Subject != "":
		c.add(path, "give the name of the topic or queue for a sink of type %s", sink)
	default:
		if err := message.CheckTopic(sink, from.Topic); err != nil {
			c.add(path, "%v", err)
		}
	}
}
