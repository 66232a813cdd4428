package service

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// pause stops the processes and waits until every thread of the leader and of
// its children has stopped: a thread that runs on another core continues for a
// moment after SIGSTOP, and may make another child. If there is no /proc it
// returns at once.
func (p *process) pause() error {
	for end := time.Now().Add(stopTimeout); time.Now().Before(end); {
		if err := p.signal(syscall.SIGSTOP, true); err != nil {
			return err
		}
		stopped := allStopped(p.group, "T")
		for _, child := range p.children() {
			stopped = stopped && allStopped(child, "TZ") // its parent cannot reap it now
		}
		if stopped {
			return nil
		}
	}
	return fmt.Errorf("it has not stopped within %v", stopTimeout)
}

// allStopped checks that each thread of the process is in one of the states.
func allStopped(id int, states string) bool {
	files, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(id), "task", "*", "stat")) // the pattern is good
	for _, file := range files {
		stat, err := os.ReadFile(file)
		// The state follows the command's name, which is in parentheses.
		state := bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:])
		if err == nil && len(state) > 0 && !bytes.ContainsRune([]byte(states), rune(state[0])) {
			return false
		}
	}
	return true
}
