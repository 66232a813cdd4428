package message_test

import (
	"encoding/binary"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token = "AbCdEfGhIjKlMnOp"
	stamp = "1790000000123"
)

// inRedis is what the scripts store: version and scheduled-at before the rest.
func inRedis(m *message.Message) string {
	return message.FormatVersion + stamp + string(message.Encode(token, m))
}

// TestStoredFormat pins version 1: what is stored today must be readable for ever.
func TestStoredFormat(t *testing.T) {
	t.Parallel()
	m := message.Message{
		ID: "id", Key: "key", Topic: "topic", Headers: map[string]string{"b": "", "a": strings.Repeat("x", 200)}, Body: []byte("body\x00\xff"),
	}
	want := "1" + stamp + token + "\x05topic" + "\x02" + "\x01a" + "\xc8\x01" + strings.Repeat("x", 200) + "\x01b" + "\x00" + "body\x00\xff"
	require.Equal(t, want, inRedis(&m))
	var got message.Message
	require.NoError(t, got.Decode(want))
	require.Equal(t, message.Message{
		Topic: "topic", Headers: m.Headers, Body: m.Body, Token: token, ScheduledAt: time.UnixMilli(1_790_000_000_123),
	}, got)
}

// TestSealedFormat pins how a sealed body is marked; and that a bridge from before there
// were seals cannot decode the message, and so does not publish it.
func TestSealedFormat(t *testing.T) {
	t.Parallel()
	m := message.Message{
		Topic: "topic", Headers: map[string]string{message.HeaderSealed: "k7", "z": "1", message.HeaderTags: "a,b"}, Body: []byte("\x01sealed"),
	}
	want := "1" + stamp + token + "\x05topic" + "\x03" + "\x0adelay-tags\x03a,b" + "\x01z\x011" + "\xff\xff\xff\x7f\x02k7" + "\x01sealed"
	require.Equal(t, want, inRedis(&m))
	var got message.Message
	require.NoError(t, got.Decode(want))
	require.Equal(t, m.Headers, got.Headers)
	require.Equal(t, m.Body, got.Body)
	require.False(t, isDecodableAsBefore(want))
	require.True(t, isDecodableAsBefore(strings.Replace(want, "\xff\xff\xff\x7f", "\x0cdelay-sealed", 1)), "but for the mark it would be")

	for n := 1; n < len(want)-len("\x01sealed"); n++ {
		require.ErrorIs(t, new(message.Message).Decode(want[:n]), message.ErrUndecodable, "cut to %d", n)
	}
	early := strings.Replace(want, "\x01z\x011"+"\xff\xff\xff\x7f\x02k7", "\xff\xff\xff\x7f\x02k7"+"\x01z\x011", 1)
	require.ErrorIs(t, new(message.Message).Decode(early), message.ErrUndecodable, "the mark is for the last header")
}

// TestUIDFormat pins that the UID stands behind the tags and before all others, where the
// scripts look for it.
func TestUIDFormat(t *testing.T) {
	t.Parallel()
	m := message.Message{Topic: "topic", Headers: map[string]string{"a": "1", message.HeaderTags: "a,b", message.HeaderUID: "u"}}
	want := "1" + stamp + token + "\x05topic" + "\x03" + "\x0adelay-tags\x03a,b" + "\x09delay-uid\x01u" + "\x01a\x011"
	require.Equal(t, want, inRedis(&m))
	require.True(t, isDecodableAsBefore(want), "a bridge that knows no UIDs publishes it, with the header")
}

// isDecodableAsBefore is whether topic and headers could be read before there were seals.
func isDecodableAsBefore(stored string) bool {
	rest := []byte(stored[len(message.FormatVersion+stamp+token):])
	number := func() (n uint64, ok bool) {
		n, size := binary.Uvarint(rest)
		rest = rest[max(size, 0):]
		return n, size > 0 && n <= uint64(len(rest))
	}
	skip := func() bool {
		n, ok := number()
		if ok {
			rest = rest[n:]
		}
		return ok
	}
	if !skip() {
		return false
	}
	count, ok := number()
	for range 2 * count {
		ok = ok && skip()
	}
	return ok
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := message.Message{
			Topic:   rapid.String().Draw(t, "topic"),
			Headers: rapid.MapOfN(rapid.String(), rapid.String(), 0, 70).Draw(t, "headers"),
			Body:    rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
		}
		var got message.Message
		require.NoError(t, got.Decode(inRedis(&m)))
		require.Equal(t, m.Topic, got.Topic)
		require.Equal(t, string(m.Body), string(got.Body))
		require.Equal(t, token, got.Token)
		require.Len(t, got.Headers, len(m.Headers))
		for name, value := range m.Headers {
			require.Equal(t, value, got.Headers[name])
		}
	})
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	good := inRedis(&message.Message{Topic: "t", Headers: map[string]string{"a": "b"}})
	require.ErrorIs(t, new(message.Message).Decode(""), message.ErrMissingBody)
	for n := 1; n < len(good); n++ {
		var m message.Message
		require.ErrorIs(t, m.Decode(good[:n]), message.ErrUndecodable, "cut to %d", n)
		if isThere := n >= len(message.FormatVersion+stamp+token+"\x01t"); isThere {
			require.Equal(t, "t", m.Topic, "cut to %d: who may touch it, and whom it is listed for", n)
		}
	}
	for name, stored := range map[string]string{
		"version":          "2" + good[1:],
		"stamp":            "1" + "x" + good[2:],
		"too many headers": good[:len(message.FormatVersion+stamp+token)] + "\x01t" + "\xff\xff\x03",
		"endless number":   good[:len(message.FormatVersion+stamp+token)] + strings.Repeat("\xff", 20),
	} {
		require.ErrorIs(t, new(message.Message).Decode(stored), message.ErrUndecodable, name)
	}
}

// FuzzDecode reads anything without a panic, and what it could read it can
// write and read again.
func FuzzDecode(f *testing.F) {
	f.Add(inRedis(&message.Message{Topic: "t", Headers: map[string]string{"a": "b", "c": ""}, Body: []byte("x")}))
	f.Add(inRedis(&message.Message{}))
	f.Add("")
	f.Add("1" + stamp + token + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
	f.Add(inRedis(&message.Message{Topic: "t", Headers: map[string]string{"a": "b", message.HeaderSealed: "k"}, Body: []byte("x")}))
	f.Fuzz(func(t *testing.T, stored string) {
		var first, second message.Message
		if err := first.Decode(stored); err != nil {
			return
		}
		again := stored[:1] + stored[1:14] + string(message.Encode(first.Token, &first))
		require.NoError(t, second.Decode(again))
		require.Equal(t, first, second)
		require.LessOrEqual(t, len(again), len(stored), "nothing was made up")
	})
}

// FuzzDeadLetter reads anything without a panic, and its own parts as they were.
func FuzzDeadLetter(f *testing.F) {
	f.Add("id", "1:2:3", int64(1_790_000_000_000), 1, 2, 3, 4, "body")
	f.Add("key\x00id", "", int64(-5), 0, 0, 0, 0, "")
	f.Add("", "9:", int64(0), 1<<40, 1, 1, 1, "1:0 0 0 0:0:")
	f.Fuzz(func(t *testing.T, member, reason string, dueMs int64, failures, begun, maybe, unknowns int, body string) {
		_ = message.DecodeDeadLetter(member, body)
		attempts := message.Attempts{Failures: failures, Begun: begun, MaybeOut: maybe, Unknowns: unknowns}
		m := message.Message{Topic: "t", Body: []byte(body)}
		stored := strings.Join([]string{
			strconv.FormatInt(dueMs, 10), attempts.String(), strconv.Itoa(len(reason)), reason + inRedis(&m),
		}, ":")
		letter := message.DecodeDeadLetter(member, stored)
		require.NoError(t, letter.Err)
		require.Equal(t, reason, letter.Reason)
		require.Equal(t, attempts, letter.Attempts)
		require.Equal(t, begun+1, letter.Attempt)
		require.Equal(t, dueMs, letter.DueAt.UnixMilli())
		require.Equal(t, body, string(letter.Body))
		require.Equal(t, member, letter.Member)
		id, key := message.SplitMember(member)
		require.Equal(t, id, letter.ID)
		require.Equal(t, key, letter.Key)
	})
}

// FuzzStored reads anything that stands beside a message without a panic, and what it could read it
// writes as it was.
func FuzzStored(f *testing.F) {
	for _, seed := range []string{"", "1 2 3 4", "0 0 0 0 1790000000123", "1 2 3", "a b c d", "P1790000000123 1 5:topicdetail", "C 0 0:", "P 1 -1:", "P 1 99:x", "\xff 1 0:"} {
		f.Add(seed)
	}
	at := time.UnixMilli(1_790_000_000_000)
	f.Fuzz(func(t *testing.T, stored string) {
		if history, err := message.ParseHistory(stored); err == nil {
			again, err := message.ParseHistory(history.String())
			require.NoError(t, err)
			require.Equal(t, history, again)
		}
		if end, err := message.ParseEnd(stored, at); err == nil {
			again, err := message.ParseEnd(end.String(), at)
			require.NoError(t, err)
			require.Equal(t, end, again)
		}
	})
}

func TestDeadLetterErrors(t *testing.T) {
	t.Parallel()
	for _, stored := range []string{"", "x", "1:0 0 0 0", "1:0 0 0 0:", "1:0 0 0 0:5:abc", "x:0 0 0 0:0:", "1:0 0 0 0:-1:", "1:0 0 0 0:99999999999999999999:"} {
		letter := message.DecodeDeadLetter("key\x00id", stored)
		require.ErrorIs(t, letter.Err, message.ErrUndecodable, stored)
		require.Equal(t, "id", letter.ID)
	}
	letter := message.DecodeDeadLetter("id", "5:1 2 3 4:7:missing")
	require.ErrorIs(t, letter.Err, message.ErrMissingBody)
	require.Equal(t, "missing", letter.Reason, "all but the message is there")
	require.Equal(t, 2, letter.Attempts.Begun)
	require.ErrorIs(t, message.DecodeDeadLetter("id", "5:one:0:x").Err, message.ErrUndecodable)
}

func TestAttempts(t *testing.T) {
	t.Parallel()
	a := message.Attempts{Failures: 1, Begun: 22, MaybeOut: 333, Unknowns: 4}
	require.Equal(t, "1 22 333 4", a.String())
	got, err := message.ParseAttempts(a.String())
	require.NoError(t, err)
	require.Equal(t, a, got)
	got, err = message.ParseAttempts("")
	require.NoError(t, err)
	require.Zero(t, got)
	for _, bad := range []string{"1", "1 2 3", "a b c d", " "} {
		_, err = message.ParseAttempts(bad)
		require.ErrorIs(t, err, message.ErrUndecodable, bad)
	}
}

func TestMember(t *testing.T) {
	t.Parallel()
	for member, want := range map[string][2]string{
		"id": {"id", ""}, "key\x00id": {"id", "key"}, "a:b\x00c|d": {"c|d", "a:b"},
	} {
		require.Equal(t, member, message.Member(want[0], want[1]))
		id, key := message.SplitMember(member)
		require.Equal(t, want, [2]string{id, key})
	}
}

func TestClaimToken(t *testing.T) {
	t.Parallel()
	require.Equal(t, "host|18446744073709551615", message.ClaimToken{Instance: "host", Number: 1<<64 - 1}.String())
}
