package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// copyTimeout limits the copying of a server's data.
const copyTimeout = 2 * time.Minute

// Snapshot copies the folder "data" of a server that runs, as a machine that stops
// at that instant leaves it; meanwhile the server is paused. It takes the place of
// the snapshot before.
func (s *Server) Snapshot(ctx context.Context) error {
	if err := s.Pause(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	err := os.RemoveAll(s.snapshot())
	if output, failure := exec.CommandContext(ctx, "cp", "-a", filepath.Join(s.dir, "data"), s.snapshot()).CombinedOutput(); failure != nil {
		err = errors.Join(err, fmt.Errorf("copy the data of %s: %w: %s", s.name, failure, output))
	}
	return errors.Join(err, s.Resume())
}

// Restore gives a server that is down the data of its snapshot.
func (s *Server) Restore() error {
	data := filepath.Join(s.dir, "data")
	return errors.Join(os.RemoveAll(data), os.Rename(s.snapshot(), data))
}

func (s *Server) snapshot() string { return filepath.Join(s.dir, "snapshot") }
