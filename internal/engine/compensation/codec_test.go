package compensation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/compensation"
)

func row() *compensation.Message {
	return &compensation.Message{Kind: compensation.KindRow, Queue: "orders", Token: "~123456789abcdef", ID: "a", Key: "k"}
}

func whole() *compensation.Message {
	m := row()
	m.Kind, m.Topic, m.Body = compensation.KindMessage, "order.timeout", []byte{0, 0xff, '<', '"'}
	m.Headers = map[string]string{"trace": "<ü>"}
	m.DueAt, m.ValidUntil = time.UnixMilli(1_900_000_000_123), time.UnixMilli(1_900_000_000_999)
	return m
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, m := range []*compensation.Message{row(), whole()} {
		encoded, err := compensation.Encode(m)
		require.NoError(t, err)
		decoded, err := compensation.Decode(encoded)
		require.NoError(t, err)
		require.Equal(t, m, decoded)
	}
}

// TestFormat pins the form: other versions and other languages read it.
func TestFormat(t *testing.T) {
	t.Parallel()
	encoded, err := compensation.Encode(row())
	require.NoError(t, err)
	require.JSONEq(t, `{"v":1,"kind":"row","queue":"orders","token":"~123456789abcdef","id":"a","key":"k"}`, string(encoded))
	encoded, err = compensation.Encode(whole())
	require.NoError(t, err)
	require.JSONEq(t, `{"v":1,"kind":"message","queue":"orders","token":"~123456789abcdef","id":"a","key":"k","topic":"order.timeout",`+
		`"headers":{"trace":"<ü>"},"body":"AP88Ig==","due_ms":1900000000123,"valid_until_ms":1900000000999}`, string(encoded))
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*compensation.Message){
		"kind":           func(m *compensation.Message) { m.Kind = "other" },
		"queue":          func(m *compensation.Message) { m.Queue = "Orders" },
		"plain token":    func(m *compensation.Message) { m.Token = "0123456789abcdef" },
		"short token":    func(m *compensation.Message) { m.Token = "~1" },
		"id":             func(m *compensation.Message) { m.ID = "" },
		"broken id":      func(m *compensation.Message) { m.ID = "\xff" },
		"topic":          func(m *compensation.Message) { m.Topic = "" },
		"header":         func(m *compensation.Message) { m.Headers = map[string]string{"delay-id": "x"} },
		"row with times": func(m *compensation.Message) { m.Kind = compensation.KindRow },
		"no due time":    func(m *compensation.Message) { m.DueAt = time.Time{} },
		"due too late":   func(m *compensation.Message) { m.DueAt = time.UnixMilli(1 << 60) },
	} {
		m := whole()
		spoil(m)
		_, err := compensation.Encode(m)
		require.Error(t, err, name)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	encoded, err := compensation.Encode(whole())
	require.NoError(t, err)
	good := string(encoded)
	for name, text := range map[string]string{
		"nothing":        "",
		"no JSON":        "secret",
		"a list":         "[]",
		"other version":  strings.Replace(good, `"v":1`, `"v":2`, 1),
		"no version":     strings.Replace(good, `"v":1,`, ``, 1),
		"unknown field":  strings.Replace(good, `"v":1`, `"v":1,"more":1`, 1),
		"cut short":      good[:len(good)-1],
		"more behind":    good + "{}",
		"no kind":        strings.Replace(good, `"kind":"message",`, "", 1),
		"given twice":    strings.Replace(good, `"v":1`, `"v":1,"id":"secret"`, 1),
		"half a pair":    strings.Replace(good, `"id":"a"`, `"id":"secret\ud800"`, 1),
		"null":           strings.Replace(good, `"headers":{`, `"headers":{"a":null,`, 1),
		"wrong type":     strings.Replace(good, `"id":"a"`, `"id":7`, 1),
		"no base64":      strings.Replace(good, "AP88Ig==", "secret!", 1),
		"no due time":    strings.Replace(good, `"due_ms":1900000000123,`, "", 1),
		"negative due":   strings.Replace(good, "1900000000123", "-1", 1),
		"not UTF-8":      strings.Replace(good, "order.timeout", "\xff", 1),
		"row with times": strings.Replace(good, `"message"`, `"row"`, 1),
		"too long":       strings.Repeat(" ", compensation.MaxEncoded+1),
	} {
		require.NotEqual(t, good, text, name)
		_, err := compensation.Decode([]byte(text))
		require.ErrorIs(t, err, compensation.ErrUndecodable, name)
		require.NotContains(t, err.Error(), "secret", "%s: the error shows none of the content", name)
	}
}

// TestDecodeNames: an error names the field.
func TestDecodeNames(t *testing.T) {
	t.Parallel()
	encoded, err := compensation.Encode(whole())
	require.NoError(t, err)
	good := string(encoded)
	for text, want := range map[string]string{
		"[]": "not a JSON object",
		strings.Replace(good, "AP88Ig==", "#", 1):           "field body is not base64",
		strings.Replace(good, `"kind":"message",`, "", 1):   "kind: must be row or message",
		strings.Replace(good, `"v":1`, `"v":1,"id":"b"`, 1): "id is given twice",
		strings.Replace(good, `"v":1`, `"v":1,"ID":"b"`, 1): "ID is unknown: it is called id",
		good + "{}": "not one JSON object",
		strings.Replace(good, `"id":"a"`, `"id":"\ud800"`, 1):           "id has ",
		strings.Replace(good, `"headers":{`, `"headers":{"a":null,`, 1): "headers.a is null",
	} {
		_, err := compensation.Decode([]byte(text))
		require.ErrorContains(t, err, want)
	}
}

// FuzzDecode: whatever is decoded is valid, and stays what it is.
func FuzzDecode(f *testing.F) {
	for _, m := range []*compensation.Message{row(), whole()} {
		encoded, err := compensation.Encode(m)
		require.NoError(f, err)
		f.Add(encoded)
	}
	f.Add([]byte(`{"v":1,"kind":"message","V":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := compensation.Decode(data)
		if err != nil {
			require.ErrorIs(t, err, compensation.ErrUndecodable)
			return
		}
		encoded, err := compensation.Encode(m)
		require.NoError(t, err)
		again, err := compensation.Decode(encoded)
		require.NoError(t, err)
		if len(m.Headers) == 0 {
			m.Headers = nil
		}
		if len(m.Body) == 0 {
			m.Body = nil
		}
		require.Equal(t, m, again)
	})
}
