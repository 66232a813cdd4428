//go:build linux

package dev

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestLockIsGivenBack although a process that was forked meanwhile still has a copy of the file.
func TestLockIsGivenBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unlock, err := lock(dir)
	require.NoError(t, err)
	_, err = lock(dir)
	require.ErrorIs(t, err, ErrInUse)
	copied := copyOf(t, filepath.Join(dir, "lock"))
	defer func() { require.NoError(t, unix.Close(copied)) }()
	unlock()
	unlock, err = lock(dir)
	require.NoError(t, err)
	unlock()
}

// copyOf copies the descriptor of a file that this process has open.
func copyOf(t *testing.T, path string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, entry := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && target == path {
			fd, err := strconv.Atoi(entry.Name())
			require.NoError(t, err)
			copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			require.NoError(t, err)
			return copied
		}
	}
	require.FailNow(t, "not open: "+path)
	return 0
}
