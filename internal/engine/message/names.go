package message

import "regexp"

var (
	// QueueName is what names a queue, and a sink: it is part of keys and of names of topics.
	QueueName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	// KeyPrefix is what may begin all keys in Redis. A brace would tear the keys of a shard
	// apart in a Redis Cluster.
	KeyPrefix = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:-]{0,62}$`)
)

// What errors say of them.
const (
	QueueNameRule = "1 to 63 of a-z 0-9 _ -, the first a letter or a digit"
	KeyPrefixRule = "1 to 63 of A-Z a-z 0-9 _ . : -, the first a letter or a digit"
)
