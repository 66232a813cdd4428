package service

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// awaitStopped waits until every thread of the server's process has stopped:
// a thread that runs on another core goes on for a moment after SIGSTOP. Where
// there is no /proc it returns at once.
func (s *Server) awaitStopped() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return nil
	}
	tasks := filepath.Join("/proc", strconv.Itoa(s.run.group), "task", "*", "stat")
	for end := time.Now().Add(stopTimeout); time.Now().Before(end); {
		files, err := filepath.Glob(tasks)
		if err != nil || allStopped(files) {
			return err
		}
	}
	return fmt.Errorf("pause %s: it has not stopped within %v", s.name, stopTimeout)
}

func allStopped(files []string) bool {
	for _, file := range files {
		stat, err := os.ReadFile(file)
		// The state follows the command's name, which is in parentheses.
		_, rest, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		if err == nil && found && !bytes.HasPrefix(rest, []byte("T")) {
			return false
		}
	}
	return true
}
