package delay_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

var keyLine = "k1 " + strings.Repeat("0f", 32) + "\n"

// TestEncryption: what is scheduled is not in Redis, and who has the key gets it.
func TestEncryption(t *testing.T) {
	t.Parallel()
	w := newWorld(t, message.Kafka)
	ring, err := delay.ParseKeyring([]byte(keyLine))
	require.NoError(t, err)
	client := w.client(t, delay.WithEncryption(ring))
	want := delay.Message{
		ID: "id", Key: "key", Topic: "t", Headers: map[string]string{"a": "b"}, Body: []byte("nobody's affair"), Tags: []string{"x"},
		Late: delay.Late{After: time.Hour, Then: delay.LateDrop},
	}
	ref := delay.Ref{ID: "id", Key: "key"}
	_, err = client.Schedule(t.Context(), want, delay.After(time.Hour))
	require.NoError(t, err)
	require.NoError(t, client.Reschedule(t.Context(), ref, delay.After(2*time.Hour)))
	info, err := client.Get(t.Context(), ref)
	require.NoError(t, err)
	require.NoError(t, info.BodyErr)
	assert.Equal(t, want, info.Message)

	found := 0
	for _, shard := range w.queue.Keys().Shards(4) {
		bodies, err := w.rdb.HVals(t.Context(), shard.Msg).Result()
		require.NoError(t, err)
		for _, body := range bodies {
			found++
			assert.NotContains(t, body, "affair")
		}
	}
	assert.Equal(t, 1, found)

	info, err = w.client(t).Get(t.Context(), ref)
	require.NoError(t, err)
	require.EqualError(t, info.BodyErr, `sealed: unknown key "k1"`)
	want.Body = nil
	assert.Equal(t, want, info.Message, "all but the body")
}

// TestEncryptedSize: what encryption adds counts towards the limit.
func TestEncryptedSize(t *testing.T) {
	t.Parallel()
	w := newWorld(t, message.Kafka)
	ring, err := delay.ParseKeyring([]byte(keyLine))
	require.NoError(t, err)
	const limit, added = 1000, 41 + 12 + len("k1")
	client := w.client(t, delay.WithEncryption(ring), delay.WithMaxSize(limit))
	m := sized(limit - added)
	_, err = client.Schedule(t.Context(), m, delay.After(time.Hour))
	require.NoError(t, err)
	m = sized(limit - added + 1)
	_, err = client.Schedule(t.Context(), m, delay.After(time.Hour))
	require.ErrorIs(t, err, delay.ErrInvalid)
}

func TestKeyrings(t *testing.T) {
	t.Parallel()
	_, err := delay.NewClient(newWorld(t, message.Kafka).rdb, "orders", delay.WithEncryption(nil))
	require.ErrorIs(t, err, delay.ErrInvalid)
	_, err = delay.ParseKeyring([]byte("k1"))
	require.EqualError(t, err, "keys: line 1: must be an id and a key")
	path := filepath.Join(t.TempDir(), "keys")
	_, err = delay.OpenKeyring(path, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte(keyLine), 0o600))
	_, err = delay.OpenKeyring(path, nil)
	require.NoError(t, err)
}
