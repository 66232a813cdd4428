package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
)

// produceResult is a broker's answer to a request for messages.
type produceResult struct {
	// err is why it stored none of them, or nil.
	err error
	// first is the offset of the first record in the leader's log; negative if it is not told.
	first int64
	// refused are the positions of the records that were to blame.
	refused []int
	// throttle is how long the broker wants to hear nothing more, as a quota demands.
	throttle time.Duration
}

// produce asks the broker to store records in a partition, in all in-sync
// replicas. kafka-go's client would do the same but that it limits the whole
// exchange by time, however well it proceeds.
func (c *conn) produce(ctx context.Context, to partition, reader kafka.RecordReader) (produceResult, error) {
	answer, err := c.RoundTrip(ctx, nil, &produce.Request{
		Acks: int16(kafka.RequireAll), Timeout: int32(c.replicaTimeout.Milliseconds()),
		Topics: []produce.RequestTopic{{
			Topic: to.topic,
			Partitions: []produce.RequestPartition{{
				Partition: int32(to.number), RecordSet: protocol.RecordSet{Records: reader},
			}},
		}},
	})
	if err != nil {
		return produceResult{}, err
	}
	response, ok := answer.(*produce.Response)
	if !ok || len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return produceResult{}, errors.New("the answer names no partition")
	}
	stored := &response.Topics[0].Partitions[0]
	result := produceResult{first: stored.BaseOffset, throttle: time.Duration(response.ThrottleTimeMs) * time.Millisecond}
	if stored.ErrorCode != 0 {
		result.err = kafka.Error(stored.ErrorCode)
		if stored.ErrorMessage != "" {
			result.err = fmt.Errorf("%w: %s", result.err, stored.ErrorMessage)
		}
		if provesNotAppended(kafka.Error(stored.ErrorCode), stored.BaseOffset) {
			result.err = &notStoredError{result.err}
		}
	}
	for _, record := range stored.RecordErrors {
		result.refused = append(result.refused, int(record.BatchIndex))
	}
	return result, nil
}
