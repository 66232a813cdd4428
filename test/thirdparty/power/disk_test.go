//go:build linux

package power

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

func TestMain(m *testing.M) {
	ServeDisk()
	os.Exit(m.Run())
}

// newDisk is a disk for the length of a test.
func newDisk(t *testing.T, seed uint64) *Disk {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil || os.Geteuid() != 0 {
		t.Skip("a disk that forgets needs root and /dev/fuse")
	}
	parent := t.TempDir()
	for dir := parent; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755), "for the user of a database")
	}
	d, err := NewDisk(filepath.Join(parent, "disk"), seed)
	if err != nil && strings.Contains(err.Error(), "not permitted") {
		t.Skip("a disk that forgets needs the right to mount one: ", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func requireContent(t *testing.T, path, want string) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(content))
}

// What was synced stays; of what was written since, the first writes may stay, too.
func TestDisk(t *testing.T) {
	t.Parallel()
	lengths := map[int]int{}
	for seed := range uint64(20) {
		d := newDisk(t, seed)
		path := func(name string) string { return filepath.Join(d.Dir(), name) }
		write := func(f *os.File, text string) {
			_, err := f.WriteString(text)
			require.NoError(t, err)
		}
		open := func(name string, flags int) *os.File {
			f, err := os.OpenFile(path(name), flags|os.O_CREATE, 0o600)
			require.NoError(t, err)
			t.Cleanup(func() { _ = f.Close() })
			return f
		}
		half := open("half", os.O_WRONLY|os.O_APPEND)
		write(half, "synced")
		require.NoError(t, half.Sync())
		for range 5 {
			write(half, "+")
		}
		write(open("every", os.O_WRONLY|os.O_SYNC), "all of it")
		require.NoError(t, os.Rename(path("every"), path("renamed")))
		shorter := open("shorter", os.O_WRONLY)
		write(shorter, "longer")
		require.NoError(t, shorter.Sync())
		require.NoError(t, shorter.Truncate(4))
		require.NoError(t, shorter.Sync())
		require.NoError(t, os.WriteFile(path("settled"), []byte("by all"), 0o600))
		require.NoError(t, d.Sync())
		write(half, "-")
		require.NoError(t, os.WriteFile(path("settled"), []byte("again"), 0o600))
		require.NoError(t, os.WriteFile(path("gone"), []byte("nothing"), 0o600))
		require.NoError(t, os.Remove(path("gone")))
		requireContent(t, path("half"), "synced+++++-")

		_, err := d.Cut()
		require.NoError(t, err)
		requireContent(t, path("renamed"), "all of it")
		requireContent(t, path("shorter"), "long")
		content, err := os.ReadFile(path("half"))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix("synced+++++-", string(content)) && len(content) >= len("synced+++++"), "%s", content)
		lengths[len(content)]++
		content, err = os.ReadFile(path("settled"))
		require.NoError(t, err)
		require.Contains(t, []string{"by all", "", "again"}, string(content))
		lost, err := d.Cut()
		require.NoError(t, err)
		require.Zero(t, lost, "what has survived is on the disk")
	}
	require.Len(t, lengths, 2, "the write after the sync is lost in some, and not in others")
}

func clientOf(t *testing.T, server *service.Server) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}
