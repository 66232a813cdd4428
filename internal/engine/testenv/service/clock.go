package service

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// clockSource is preloaded into a server: libfaketime ends redis-server where it starts.
//
//go:embed preload/clock.c
var clockSource []byte

// Clock is the wall clock that a server sees. It runs as ours does, and can be set.
type Clock struct{ file *os.File }

// StartRedisWithClock is [StartRedis] of a server whose clock can be set. It needs Linux and
// a C compiler.
func StartRedisWithClock(ctx context.Context, args ...string) (*Server, *Clock, error) {
	s, err := prepareRedis(ctx, "", args...)
	if err != nil {
		return nil, nil, err
	}
	clock, err := s.preloadClock(ctx)
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	s, err = s.start(ctx)
	return s, clock, err
}

func (s *Server) preloadClock(ctx context.Context) (*Clock, error) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	source, err := s.Own("clock.c", clockSource)
	if err != nil {
		return nil, err
	}
	library := filepath.Join(s.dir, "clock.so")
	if said, err := exec.CommandContext(ctx, compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the clock: %w: %s", err, said)
	}
	name := filepath.Join(s.dir, "clock")
	clock := &Clock{}
	if clock.file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	s.env = append(s.env, "LD_PRELOAD="+library, "CLOCK_FILE="+name)
	return clock, clock.Set(0)
}

// Set has the clock show so much more than ours from now on, or less where it is negative.
func (c *Clock) Set(ahead time.Duration) error { return c.write(ahead.Microseconds(), 0) }

// Stop has the clock stand at an instant until it is set or stopped again.
func (c *Clock) Stop(at time.Time) error { return c.write(0, at.UnixMicro()) }

// write sets what preload/clock.c reads.
func (c *Clock) write(ahead, stands int64) error {
	bits := binary.NativeEndian.AppendUint64(nil, uint64(ahead))                        //nolint:gosec // the bits of a signed one
	_, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(bits, uint64(stands)), 0) //nolint:gosec // as above
	return err
}

// Close ends the use of the clock, which stays as it is.
func (c *Clock) Close() error { return c.file.Close() }
