package seal_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Lines of files of keys.
var (
	oldKey   = "old " + strings.Repeat("0a", 32) + "\n"
	newKey   = "new " + strings.Repeat("0b", 32) + "\n"
	otherOld = "old " + strings.Repeat("0c", 32) + "\n"
	alias    = "alias " + strings.Repeat("0a", 32) + "\n" // the same key
)

const payload = "a body that nobody may read"

func order() message.Message {
	return message.Message{
		Queue: "orders", Key: "order-42", ID: "timeout", Topic: "order.timeout",
		Headers: map[string]string{"a": "b"}, Body: []byte(payload),
	}
}

func ring(t testing.TB, keys string) *seal.Keyring {
	t.Helper()
	r, err := seal.Parse([]byte(keys))
	require.NoError(t, err)
	return r
}

func sealed(t testing.TB, keys string) message.Message {
	t.Helper()
	m := order()
	require.NoError(t, seal.Seal(ring(t, keys), &m))
	return m
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	keys := ring(t, oldKey)
	for _, size := range []int{0, 1, 15, 16, 17, 256, 64 << 10} {
		m := order()
		m.Body = bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		before, body, headers := m.Size(), m.Body, m.Headers
		wasBody, wasHeaders := bytes.Clone(body), maps.Clone(headers)
		require.NoError(t, seal.Seal(keys, &m))
		assert.Equal(t, before+seal.Overhead+len(message.HeaderSealed)+len("old"), m.Size(), "what the documents say")
		assert.NotContains(t, string(m.Body), "0123456789")
		again := m
		again.Body, again.Headers = wasBody, wasHeaders
		require.NoError(t, seal.Seal(keys, &again))
		assert.NotEqual(t, m.Body, again.Body, "each has a nonce of its own")

		inTransit := m
		require.NoError(t, seal.Open(keys, &m))
		assert.Equal(t, string(wasBody), string(m.Body))
		assert.Equal(t, wasHeaders, m.Headers)
		assert.Equal(t, wasBody, body, "what was given is left alone")
		assert.Equal(t, wasHeaders, headers)
		require.NoError(t, seal.Open(keys, &inTransit), "so it can be opened twice")
		require.NoError(t, seal.Open(keys, &m), "a clear message is left as it is")
		assert.Equal(t, string(wasBody), string(m.Body))
	}
}

// TestThroughRedis: what a sealed message looks like in Redis, and to what knows no seals.
func TestThroughRedis(t *testing.T) {
	t.Parallel()
	m := sealed(t, oldKey)
	stored := message.FormatVersion + "1790000000123" + string(message.Encode("AbCdEfGhIjKlMnOp", &m))
	assert.NotContains(t, stored, payload)
	got := message.Message{Queue: m.Queue, Key: m.Key, ID: m.ID}
	require.NoError(t, got.Decode(stored))
	require.NoError(t, seal.Open(ring(t, oldKey), &got))
	assert.Equal(t, payload, string(got.Body))
	assert.Equal(t, map[string]string{"a": "b"}, got.Headers)
}

// stored is order as another implementation has sealed it.
func stored(t testing.TB) message.Message {
	t.Helper()
	m := order()
	m.Headers[message.HeaderSealed] = "old"
	var err error
	m.Body, err = hex.DecodeString("01" + "000102030405060708090a0b0c0d0e0f1011121314151617" +
		"852bcb8e01af09972a90b1a667ba397805b51a1ead41b28cf888c47db1b89c4f7d3737e09302647ccba479")
	require.NoError(t, err)
	return m
}

// TestFormat opens what was sealed long ago: messages wait for months, and in other
// languages the format is written by hand.
func TestFormat(t *testing.T) {
	t.Parallel()
	m := stored(t)
	require.NoError(t, seal.Open(ring(t, oldKey), &m))
	assert.Equal(t, payload, string(m.Body))
}

func TestWithoutKeys(t *testing.T) {
	t.Parallel()
	m := order()
	require.NoError(t, seal.Seal(nil, &m))
	assert.Equal(t, order(), m)
	m = sealed(t, oldKey)
	want := m
	for _, keys := range []*seal.Keyring{nil, ring(t, newKey)} {
		err := seal.Open(keys, &m)
		require.ErrorIs(t, err, message.ErrUnknownKey)
		require.EqualError(t, err, `sealed: unknown key "old"`)
		assert.Equal(t, want, m, "it is as it was")
	}
}

// TestReservedHeader: nobody can pass off a clear body as sealed, or seal twice.
func TestReservedHeader(t *testing.T) {
	t.Parallel()
	for _, keys := range []*seal.Keyring{nil, ring(t, oldKey)} {
		m := sealed(t, oldKey)
		var invalid *message.InvalidError
		require.ErrorAs(t, seal.Seal(keys, &m), &invalid)
		assert.Equal(t, "header", invalid.Field)
	}
}

// TestBrokenSeals changes every bit of a body, and all that is bound to it.
func TestBrokenSeals(t *testing.T) {
	t.Parallel()
	keys, good := ring(t, oldKey+newKey+alias), sealed(t, oldKey)
	refused := func(what string, change func(m *message.Message)) {
		t.Helper()
		m := good
		m.Body, m.Headers = bytes.Clone(good.Body), maps.Clone(good.Headers)
		change(&m)
		want := string(m.Body)
		err := seal.Open(keys, &m)
		require.ErrorIs(t, err, message.ErrBrokenSeal, what)
		require.NotErrorIs(t, err, message.ErrUnknownKey, what)
		assert.Equal(t, want, string(m.Body), what)
	}
	for i := range good.Body {
		for bit := range 8 {
			refused(fmt.Sprint("byte ", i), func(m *message.Message) { m.Body[i] ^= 1 << bit })
		}
		refused(fmt.Sprint("cut to ", i), func(m *message.Message) { m.Body = m.Body[:i] })
	}
	refused("longer", func(m *message.Message) { m.Body = append(m.Body, 0) })
	for what, change := range map[string]func(m *message.Message){
		"queue":            func(m *message.Message) { m.Queue = "mails" },
		"key":              func(m *message.Message) { m.Key = "order-43" },
		"id":               func(m *message.Message) { m.ID = "reminder" },
		"topic":            func(m *message.Message) { m.Topic = "order.paid" },
		"no key":           func(m *message.Message) { m.Key = "" },
		"parts that shift": func(m *message.Message) { m.Key, m.ID = m.Key+m.ID[:1], m.ID[1:] },
		"another name":     func(m *message.Message) { m.Headers[message.HeaderSealed] = "alias" },
		"another's key":    func(m *message.Message) { m.Headers[message.HeaderSealed] = "new" },
		"no id of a key":   func(m *message.Message) { m.Headers[message.HeaderSealed] = "no key's id" },
		"an empty id":      func(m *message.Message) { m.Headers[message.HeaderSealed] = "" },
	} {
		refused(what, change)
	}
	keys = ring(t, otherOld)
	refused("another key of that id", func(*message.Message) {})
}

// TestSwappedBodies: two messages of a queue that exchange their bodies open neither.
func TestSwappedBodies(t *testing.T) {
	t.Parallel()
	keys := ring(t, oldKey)
	one, two := order(), order()
	two.ID = "reminder"
	require.NoError(t, seal.Seal(keys, &one))
	require.NoError(t, seal.Seal(keys, &two))
	one.Body, two.Body = two.Body, one.Body
	require.ErrorIs(t, seal.Open(keys, &one), message.ErrBrokenSeal)
	require.ErrorIs(t, seal.Open(keys, &two), message.ErrBrokenSeal)
	one.Body, two.Body = two.Body, one.Body
	require.NoError(t, seal.Open(keys, &one))
	require.NoError(t, seal.Open(keys, &two))
}

// FuzzOpen opens anything without a panic, and nothing but what was sealed.
func FuzzOpen(f *testing.F) {
	keys := ring(f, oldKey)
	good := stored(f) // The same in each of the fuzzer's processes.
	f.Add(good.Body, "old", "orders", "order-42", "timeout", "order.timeout")
	f.Add(good.Body[:41], "old", "orders", "order-42", "timeout", "order.timeout")
	f.Add([]byte{}, "", "", "", "", "")
	f.Fuzz(func(t *testing.T, body []byte, id, queue, key, name, topic string) {
		m := message.Message{
			Queue: queue, Key: key, ID: name, Topic: topic, Body: body, Headers: map[string]string{message.HeaderSealed: id},
		}
		err := seal.Open(keys, &m)
		isGood := bytes.Equal(body, good.Body) && id == "old" && queue == good.Queue && key == good.Key && name == good.ID && topic == good.Topic
		require.Equal(t, isGood, err == nil, "%v", err)
		if err != nil {
			require.Equal(t, id != "old" && message.IsKeyID(id), strings.HasPrefix(err.Error(), message.ErrUnknownKey.Error()))
		}
	})
}

func benchmark(b *testing.B, run func(b *testing.B, keys *seal.Keyring, m message.Message)) {
	for _, size := range []int{256, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			m := order()
			m.Body = make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			run(b, ring(b, oldKey), m)
		})
	}
}

func BenchmarkSeal(b *testing.B) {
	benchmark(b, func(b *testing.B, keys *seal.Keyring, m message.Message) {
		b.Helper()
		for b.Loop() {
			one := m
			if err := seal.Seal(keys, &one); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	benchmark(b, func(b *testing.B, keys *seal.Keyring, m message.Message) {
		b.Helper()
		require.NoError(b, seal.Seal(keys, &m))
		for b.Loop() {
			one := m
			if err := seal.Open(keys, &one); err != nil {
				b.Fatal(err)
			}
		}
	})
}
