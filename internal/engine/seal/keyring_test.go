package seal_test

import (
	"encoding/base64"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestParse(t *testing.T) {
	t.Parallel()
	raw := strings.Repeat("k", 32)
	ring, err := seal.Parse([]byte("# comment\n\n old " + hex.EncodeToString([]byte(raw)) + "\r\nnew\t" + base64.RawStdEncoding.EncodeToString([]byte(raw)) + "\n"))
	require.NoError(t, err)
	m := order()
	require.NoError(t, seal.Seal(ring, &m))
	id, _ := m.SealedBy()
	assert.Equal(t, "old", id, "the first seals")
	based, err := seal.Parse([]byte("old " + base64.StdEncoding.EncodeToString([]byte(raw))))
	require.NoError(t, err)
	require.NoError(t, seal.Open(based, &m), "all ways to write a key are the same")
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	// Keys that nobody may read in an error: in each spelling, and wherever they stand.
	hexed, based := strings.Repeat("5ec7e75e", 8), base64.StdEncoding.EncodeToString([]byte(strings.Repeat("secret!!", 4)))
	for content, says := range map[string]string{
		"":                                    "has no key",
		"# only\n":                            "has no key",
		hexed:                                 "line 1: must be an id and a key",
		"\n" + based:                          "line 2: must be an id and a key",
		hexed + " k1":                         "line 1: the id must be 1 to 32",
		based + " k1":                         "line 1: the id must be 1 to 32",
		"k1 " + hexed + " " + based:           "line 1: must be an id and a key",
		"k/1 " + hexed:                        "line 1: the id must be 1 to 32",
		strings.Repeat("i", 33) + " " + based: "line 1: the id must be 1 to 32",
		"k1 " + hexed + "00":                  `line 1: key "k1" must be 32 bytes`,
		"k1 " + hexed[2:]:                     `line 1: key "k1" must be 32 bytes`,
		"k1 " + based[:40]:                    `line 1: key "k1" must be 32 bytes`,
		"k1 " + strings.Repeat("5ec7!e75", 8): `line 1: key "k1" must be 32 bytes`,
		"k1 " + hexed + "\nk1 " + based:       `line 2: there is a key "k1" already`,
		"k1 x\nk2 y":                          `line 2: key "k2" must be 32 bytes`,
	} {
		_, err := seal.Parse([]byte(content))
		require.ErrorContains(t, err, says, "%q", content)
		for _, hidden := range []string{"5ec7", based[:8]} {
			assert.NotContains(t, err.Error(), hidden)
		}
	}
}

// TestRotation: a key is added, becomes the first, and the old one goes, without a restart.
// What is wrong changes nothing, and is told without a key.
func TestRotation(t *testing.T) {
	t.Parallel()
	log := &testenv.Log{}
	path := filepath.Join(t.TempDir(), "keys")
	write := func(content string) { require.NoError(t, os.WriteFile(path, []byte(content), 0o600)) }
	write(oldKey)
	ring, err := seal.Load(path, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	sealedBy := func() (message.Message, string) {
		m := order()
		require.NoError(t, seal.Seal(ring, &m))
		id, _ := m.SealedBy()
		return m, id
	}
	until := func(is func() bool) {
		t.Helper()
		require.Eventually(t, is, time.Minute, 20*time.Millisecond)
	}
	old, id := sealedBy()
	require.Equal(t, "old", id)
	foreign := sealed(t, newKey)

	write(oldKey + newKey)
	until(func() bool { m := foreign; return seal.Open(ring, &m) == nil })
	_, id = sealedBy()
	require.Equal(t, "old", id)

	write(newKey + oldKey)
	until(func() bool { _, id := sealedBy(); return id == "new" })
	before := old
	require.NoError(t, seal.Open(ring, &before))

	write("new hidden-key\n")
	until(func() bool {
		_, id := sealedBy()
		return id == "new" && strings.Contains(log.String(), `key \"new\" must be 32 bytes`)
	})
	require.NoError(t, os.Remove(path))
	until(func() bool {
		_, id := sealedBy()
		return id == "new" && strings.Contains(log.String(), "cannot be read again")
	})

	write(newKey)
	until(func() bool { m := old; return seal.Open(ring, &m) != nil })
	require.ErrorIs(t, seal.Open(ring, &old), message.ErrUnknownKey)
	assert.NotContains(t, log.String(), "hidden-key")
	assert.NotContains(t, log.String(), strings.Fields(newKey)[1])

	_, err = seal.Load(path+"x", nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}
