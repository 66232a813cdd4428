package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The host of a virtual machine may take memory away that nobody has used for a second, and give
// it back page by page, each of which takes as long as a dozen small scripts of Redis. All that
// keep messages in memory until they are due are late by that.

const (
	idleFor   = 2 * time.Second
	slowTouch = 50 * time.Microsecond
	// touchEvery is much shorter than idleFor.
	touchEvery = 250 * time.Millisecond
)

// slowPages is how many percent of memory that was idle takes longer than slowTouch to be read.
func slowPages(ctx context.Context) (float64, error) {
	memory, err := syscall.Mmap(-1, 0, 100<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return 0, fmt.Errorf("map memory: %w", err)
	}
	page := os.Getpagesize()
	for at := 0; at < len(memory); at += page {
		memory[at] = 1
	}
	if err := sleepUntil(ctx, time.Now().Add(idleFor)); err != nil {
		return 0, errors.Join(err, syscall.Munmap(memory))
	}
	slow, sum := 0, 0
	for at := 0; at < len(memory); at += page {
		began := time.Now()
		sum += int(memory[at])
		if time.Since(began) > slowTouch {
			slow++
		}
	}
	return 100 * float64(slow) / float64(sum), syscall.Munmap(memory)
}

// keepTouched reads the memory of each Redis that this program has started, until it is stopped.
func keepTouched() (stop func()) {
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		ticker := time.NewTicker(touchEvery)
		defer ticker.Stop()
		buffer := make([]byte, 1<<20)
		for {
			for _, pid := range children(os.Getpid()) {
				if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(name) == "redis-server\n" {
					touch(pid, buffer)
				}
			}
			select {
			case <-done:
				return
			case <-ticker.C:
			}
		}
	})
	return func() {
		close(done)
		group.Wait()
	}
}

// children are a process's, and theirs.
func children(pid int) (all []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file) // It may have ended.
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(append(all, child), children(child)...)
			}
		}
	}
	return all
}

// mostTouched leaves out a Redis of many messages, which would take all of the time.
const mostTouched = 256 << 20

// touch reads what a process has in memory and may write to. What has gone meanwhile is left out.
func touch(pid int, buffer []byte) {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return
	}
	defer func() { _ = memory.Close() }()
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return
	}
	defer func() { _ = maps.Close() }()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to int64
		var rights string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &rights); n < 3 || !strings.HasPrefix(rights, "rw") || to-from > mostTouched {
			continue
		}
		for from < to {
			n, err := memory.ReadAt(buffer[:min(to-from, int64(len(buffer)))], from)
			if err != nil {
				break
			}
			from += int64(n)
		}
	}
}
