package message

import "regexp"

var (
	// QueueName matches the names of queues and sinks, which are part of keys and of names of topics.
	QueueName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	// KeyPrefix matches valid prefixes of the keys in Redis. A brace would spread the keys
	// of a shard over a Redis Cluster.
	KeyPrefix = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:-]{0,62}$`)
)

// Their limits, for errors.
const (
	QueueNameRule = "1 to 63 of a-z 0-9 _ -, the first a letter or a digit"
	KeyPrefixRule = "1 to 63 of A-Z a-z 0-9 _ . : -, the first a letter or a digit"
)
