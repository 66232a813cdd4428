//go:build unix

package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lock keeps other processes from working on the same folder; the system takes
// the lock back when this process ends.
func lock(dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock folder: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", ErrInUse, dir)
		}
		return nil, fmt.Errorf("lock folder: %w", err)
	}
	return func() { giveBack(file) }, nil
}

// giveBack unlocks the file and closes it. Closing it is not enough: a process that another goroutine has just
// forked has a copy of it, and the lock, until it runs its program.
func giveBack(file *os.File) {
	_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
	_ = file.Close()
}

const (
	// turnFile is the same for all users and whatever TMPDIR says, as the ports are.
	turnFile     = "/tmp/delaybridge-dev.lock"
	turnPatience = 10 * time.Second
	turnPause    = 10 * time.Millisecond
)

// awaitTurn lets one process after the other choose its ports and listen: two
// that start at once would choose the same. It gives up after a while, as the
// other may hang, and does not insist where the file cannot be had: then the
// worst is a port that is taken.
func awaitTurn(ctx context.Context) (done func()) {
	file, err := openTurn()
	if err != nil {
		return func() {}
	}
	done = func() { giveBack(file) }
	ctx, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	for unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		timer := time.NewTimer(turnPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return done
		}
	}
	return done
}

// openTurn makes the file where it is missing only: in a shared folder, Linux
// refuses O_CREATE for a file of another user.
func openTurn() (*os.File, error) {
	const read = os.O_RDONLY | unix.O_NOFOLLOW
	file, err := os.OpenFile(turnFile, read, 0)
	if errors.Is(err, os.ErrNotExist) {
		if file, err = os.OpenFile(turnFile, read|os.O_CREATE|os.O_EXCL, 0o644); errors.Is(err, os.ErrExist) {
			file, err = os.OpenFile(turnFile, read, 0)
		}
	}
	return file, err
}
