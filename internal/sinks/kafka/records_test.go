package kafka

import (
	"bytes"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// itemsOf makes one call of the messages.
func itemsOf(batch ...message.Message) []publication {
	c := newSubmission(batch, sinks.NewOutcomes(len(batch)))
	items := make([]publication, len(batch))
	for i := range batch {
		items[i] = publication{submission: c, index: i}
	}
	return items
}

func TestRecordSizeIsUpperBound(t *testing.T) {
	t.Parallel()
	headers := map[string]string{}
	for i := range message.MaxHeaders {
		headers[strings.Repeat("h", 200)+string(rune('0'+i))] = strings.Repeat("v", 3000)
	}
	for _, m := range []message.Message{
		newMessage(t, "topic", ""),
		newMessage(t, "topic", strings.Repeat("k", 255)),
		{ID: strings.Repeat("i", 255), Queue: strings.Repeat("q", 63), Headers: headers, Body: make([]byte, 700_000), Attempt: 1 << 40},
	} {
		var encoded bytes.Buffer
		set := protocol.RecordSet{Version: 2, Records: &records{batch: itemsOf(m)}}
		_, err := set.WriteTo(&encoded)
		require.NoError(t, err)
		const batchHeader = 65
		require.LessOrEqual(t, encoded.Len()-batchHeader, recordSize(&m))
		require.Greater(t, encoded.Len()-batchHeader, recordSize(&m)/2)
	}
}

func TestEmptyIsNotNull(t *testing.T) {
	t.Parallel()
	m := newMessage(t, "topic", "")
	m.Headers, m.Body = map[string]string{"a": "", "b": "x", "c": ""}, nil
	record, err := (&records{batch: itemsOf(m)}).ReadRecord()
	require.NoError(t, err)
	require.Nil(t, record.Key)
	require.NotNil(t, record.Value)
	require.Len(t, record.Headers, 9)
	for i, value := range []string{"", "x", "", m.ID} {
		require.NotNil(t, record.Headers[i].Value)
		require.Equal(t, value, string(record.Headers[i].Value))
	}
}

// TestPartitionerIsJavas holds the choice against values of
// org.apache.kafka.common.utils.Utils.murmur2.
func TestPartitionerIsJavas(t *testing.T) {
	t.Parallel()
	for key, hash := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"abc": 479470107, "order-42": 501153024, "ключ": 2122343024,
	} {
		for _, count := range []int{1, 2, 6, 7, 100} {
			numbers := make([]int, count)
			for i := range numbers {
				numbers[i] = i
			}
			require.Equal(t, int(hash&0x7fffffff)%count, partitionOf(key, numbers), key)
		}
	}
}

func TestConsumedReaderIsNoSuccess(t *testing.T) {
	t.Parallel()
	reader := &records{batch: itemsOf(newMessage(t, "topic", ""))}
	_, err := reader.ReadRecord()
	require.NoError(t, err)
	set := protocol.RecordSet{Version: 2, Records: reader}
	_, err = set.WriteTo(&bytes.Buffer{})
	require.ErrorIs(t, err, protocol.ErrNoRecord, "a reader serves one request, and is made for each")
	var _ kafka.RecordReader = reader
}
