package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEncryptionKeys are read when the configuration is: what is wrong with them is told
// with its line, and without a key.
func TestEncryptionKeys(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	parse := func(keys string) (*Config, error) {
		require.NoError(t, os.WriteFile(file, []byte(keys), 0o600))
		return Parse([]byte(base+"encryption: {keys: "+file+", show_bodies: true}\n"), nil)
	}
	config, err := parse("k1 " + strings.Repeat("ab", 32))
	require.NoError(t, err)
	assert.Equal(t, Encryption{Keys: file, ShowBodies: true}, config.Encryption)
	_, err = parse("# none\nhidden\n")
	require.EqualError(t, err, "line 3: encryption.keys: "+file+": line 2: must be an id and a key")
	require.NoError(t, os.Remove(file))
	_, err = Parse([]byte(base+"encryption: {keys: "+file+"}\n"), nil)
	require.ErrorContains(t, err, "line 3: encryption.keys: ")
}
