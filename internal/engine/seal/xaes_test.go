package seal

import (
	"bytes"
	"crypto/sha3"
	"encoding/hex"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestVectors are those of https://c2sp.org/XAES-256-GCM: one for each way to derive the
// subkey, and one over 10,000 messages.
func TestVectors(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		key         byte
		bound, want string
	}{
		{1, "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"},
		{3, "c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"},
	} {
		x, err := newXAES(bytes.Repeat([]byte{v.key}, keySize))
		require.NoError(t, err)
		got, err := x.seal(nil, []byte("ABCDEFGHIJKLMNOPQRSTUVWX"), []byte("XAES-256-GCM"), []byte(v.bound))
		require.NoError(t, err)
		assert.Equal(t, v.want, hex.EncodeToString(got))
	}
}

func TestManyVectors(t *testing.T) {
	t.Parallel()
	source, sum := sha3.NewSHAKE128(), sha3.NewSHAKE128()
	next := func(n int) []byte {
		b := make([]byte, n)
		_, err := io.ReadFull(source, b)
		require.NoError(t, err)
		return b
	}
	for range 10_000 {
		key, nonce := next(keySize), next(nonceSize)
		body := next(int(next(1)[0]))
		bound := next(int(next(1)[0]))
		x, err := newXAES(key)
		require.NoError(t, err)
		sealed, err := x.seal(nil, nonce, body, bound)
		require.NoError(t, err)
		aead, err := x.derived(nonce)
		require.NoError(t, err)
		opened, err := aead.Open(nil, nonce[halfNonce:], sealed, bound)
		require.NoError(t, err)
		require.True(t, bytes.Equal(body, opened))
		_, _ = sum.Write(sealed) // It never fails.
	}
	got := make([]byte, 32)
	_, err := io.ReadFull(sum, got)
	require.NoError(t, err)
	assert.Equal(t, "e6b9edf2df6cec60c8cbd864e2211b597fb69a529160cd040d56c0c210081939", hex.EncodeToString(got))
}
