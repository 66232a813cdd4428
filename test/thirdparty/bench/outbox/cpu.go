package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of CPU time in /proc, the same on every Linux.
const ticksPerSecond = 100

// spent is the processor time of producer, PostgreSQL, relay or settler and Redis up
// to now.
func (w *world) spent(ctx context.Context, bridge *process) (cpu [4]time.Duration) {
	cpu[0] = processTime(os.Getpid(), false)
	pid, _ := os.ReadFile(filepath.Join(w.postgres.Dir(), "data", "postmaster.pid"))
	first, _, _ := strings.Cut(string(pid), "\n")
	postmaster, _ := strconv.Atoi(first)
	cpu[1] = processTime(postmaster, true)
	for _, child := range childrenOf(postmaster) {
		cpu[1] += processTime(child, true)
	}
	if bridge != nil {
		cpu[2] = processTime(bridge.command.Process.Pid, false)
	}
	text, _ := w.rdb.Info(ctx, "server").Result()
	server, _ := strconv.Atoi(field(text, "process_id:"))
	cpu[3] = processTime(server, false)
	return cpu
}

// processTime is what a process has used, and those of its children that have
// ended, if asked for; 0 where there is no such process.
func processTime(pid int, ended bool) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ") // A program's name may contain spaces.
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return 0
	}
	columns := fields[11:13]
	if ended {
		columns = fields[11:15]
	}
	ticks := 0
	for _, column := range columns {
		n, _ := strconv.Atoi(column)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

func childrenOf(pid int) (list []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for column := range strings.FieldsSeq(string(text)) {
		if child, err := strconv.Atoi(column); err == nil {
			list = append(list, child)
		}
	}
	return list
}
