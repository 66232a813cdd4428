package kafka

import (
	"bytes"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/message"
)

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
		batch := newPiece(laneKey{}, []message.Message{m})
		batch.add(0)
		var encoded bytes.Buffer
		set := protocol.RecordSet{Version: 2, Records: &records{batch: []item{{batch, 0}}}}
		_, err := set.WriteTo(&encoded)
		require.NoError(t, err)
		const batchHeader = 65
		require.LessOrEqual(t, encoded.Len()-batchHeader, recordSize(&m))
		require.Greater(t, encoded.Len()-batchHeader, recordSize(&m)/2)
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
			want := int(hash&0x7fffffff) % count
			require.Equal(t, want, newPartitioner(make([]string, count)).choose(key), key)
		}
	}
}

func TestMessagesWithoutKeyShareALedPartition(t *testing.T) {
	t.Parallel()
	leaders := []string{"", "a", "", "b", "a", ""}
	chosen := map[int]bool{}
	for range 200 {
		choice := newPartitioner(leaders)
		partition := choice.choose("")
		require.NotEmpty(t, leaders[partition])
		require.Equal(t, partition, choice.choose(""), "one call, one partition")
		chosen[partition] = true
	}
	require.Len(t, chosen, 3, "the calls must spread")
	require.Equal(t, 0, newPartitioner(make([]string, 1)).choose(""))
}

func TestConsumedReaderIsNoSuccess(t *testing.T) {
	t.Parallel()
	batch := newPiece(laneKey{}, []message.Message{newMessage(t, "topic", "")})
	batch.add(0)
	reader := &records{batch: []item{{batch, 0}}}
	_, err := reader.ReadRecord()
	require.NoError(t, err)
	set := protocol.RecordSet{Version: 2, Records: reader}
	_, err = set.WriteTo(&bytes.Buffer{})
	require.ErrorIs(t, err, protocol.ErrNoRecord, "a reader serves one request, and is made for each")
	var _ kafka.RecordReader = reader
}
