package sinks

import "fmt"

// Place is where a broker has stored a message, as far as its acknowledgement tells: a
// sequence of a NATS stream, an offset of a Kafka partition, the ID of an entry of a
// Redis Stream, or Pub/Sub's ID of the message.
type Place struct {
	// IsKnown is false if the acknowledgement told nothing, as RabbitMQ's.
	IsKnown bool
	// Stream is NATS'; empty for the others.
	Stream string
	// Entry is Redis': milliseconds, a dash, and a number; or Pub/Sub's. It is empty for the others.
	Entry string
	// Partition is Kafka's.
	Partition int32
	// Number is the sequence, or the offset.
	Number uint64
}

// String is the place for people; empty if it is not known.
func (p Place) String() string {
	switch {
	case !p.IsKnown:
		return ""
	case p.Entry != "":
		return "entry " + p.Entry
	case p.Stream != "":
		return fmt.Sprintf("stream %s sequence %d", p.Stream, p.Number)
	default:
		return fmt.Sprintf("partition %d offset %d", p.Partition, p.Number)
	}
}
