package operate

import "time"

// Inlets are the inlets as one instance sees them: what it has consumed itself, since it began.
type Inlets struct {
	Instance string      `json:"instance" doc:"The instance that was asked. Others that share an inlet have figures of their own."`
	Began    string      `json:"began_at" format:"date-time" doc:"When it began; what is counted is counted from then."`
	Inlets   []InletView `json:"inlets" nullable:"false"`
}

// InletView is an inlet as one instance sees it.
type InletView struct {
	InletSettings
	InletState
}

// InletSettings are what the configuration says of an inlet.
type InletSettings struct {
	Name    string `json:"name"`
	Queue   string `json:"queue" doc:"The queue that its messages are for."`
	Sink    string `json:"sink" doc:"The sink whose broker it consumes from."`
	Type    string `json:"type" doc:"The kind of broker." enum:"kafka,nats,rabbitmq"`
	From    string `json:"from" doc:"The Kafka topic, RabbitMQ queue or NATS subject that it consumes."`
	Stream  string `json:"stream,omitempty" doc:"On NATS the stream of the subject."`
	Group   string `json:"group" doc:"Under which name the bridges share it at the broker: the consumer group on Kafka, the durable on NATS, the beginning of the consumers' tags on RabbitMQ."`
	Topic   string `json:"topic,omitempty" doc:"Where a message is published that does not say it."`
	Replies string `json:"replies,omitempty" doc:"Where answers are published; absent if nobody is answered."`
	Dead    string `json:"dead,omitempty" doc:"Where what is refused is published; absent if that is dropped."`
}

// InletState is what an instance knows of an inlet. What it does not know is absent.
type InletState struct {
	State  string `json:"state" enum:"consuming,waiting,disconnected" doc:"Whether this instance does what comes; or cannot do what it got, and takes no more until it can; or gets nothing."`
	Since  string `json:"since" format:"date-time" doc:"Since when it is in that state."`
	Cause  string `json:"cause,omitempty" enum:"broker,redis,replies,dead" doc:"What it waits for: the broker, Redis, or that replies or dead can be published to."`
	Reason string `json:"reason,omitempty" doc:"What that said last."`

	InHand   int           `json:"in_hand" doc:"How many messages it got and has not done."`
	Behind   *int64        `json:"behind,omitempty" doc:"How many messages waited at the broker behind the last one that this instance got; on Kafka those of its partitions. Absent if the broker has not told."`
	BehindAt string        `json:"behind_at,omitempty" format:"date-time" doc:"When the broker told."`
	Rate     *InletRate    `json:"rate,omitempty" doc:"Absent in the first seconds."`
	Results  []InletResult `json:"results" nullable:"false" doc:"How many messages had which result."`
	Repeated int64         `json:"repeated" doc:"How many could not be done at once."`
	Refused  *InletRefusal `json:"refused,omitempty" doc:"The last message that was refused as invalid. A caller of certain topics is not shown it."`
}

// InletRate is how many messages a second the instance has done.
type InletRate struct {
	Over float64 `json:"over_s" doc:"Over how many seconds."`
	Done float64 `json:"done"`
}

// InletResult counts the messages of one result.
type InletResult struct {
	Op     string `json:"op,omitempty" doc:"schedule, cancel or reschedule; absent if the message does not say it."`
	Result string `json:"result" doc:"The status, or the code of the error; lost if the broker refused the answer, or the copy in dead."`
	Count  int64  `json:"count"`
}

// InletRefusal is a message that was refused. Its payload is not in it.
type InletRefusal struct {
	At       string `json:"at" format:"date-time"`
	Position string `json:"position,omitempty" doc:"Where the message is at the broker: Kafka topic, partition and offset, or NATS stream and sequence, with the message's time; RabbitMQ has none."`
	ID       string `json:"id,omitempty" doc:"The message's id; absent if it has none that is valid."`
	Field    string `json:"field" doc:"The header that is wrong."`
	Reason   string `json:"reason"`
}

// The states of an inlet, and what it waits for.
const (
	InletConsuming    = "consuming"
	InletWaiting      = "waiting"
	InletDisconnected = "disconnected"

	CauseBroker  = "broker"
	CauseRedis   = "redis"
	CauseReplies = "replies"
	CauseDead    = "dead"
)

// WithoutBroker notes that the broker does not answer. A client that waits for it may not say so itself, as that of Kafka does not.
func (s *InletState) WithoutBroker(why string, since time.Time) {
	if s.State != InletDisconnected {
		s.State, s.Cause, s.Reason, s.Since = InletDisconnected, CauseBroker, why, Stamp(since)
		s.Behind, s.BehindAt = nil, ""
	}
}
