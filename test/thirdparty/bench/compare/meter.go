package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// ticksPerSecond is the unit of CPU time in /proc, the same on every Linux.
const ticksPerSecond = 100

// meters tell what some have used since they were started, by metric.
type meters struct {
	used   map[metric]func() time.Duration
	before map[metric]time.Duration
}

func startMeters(used map[metric]func() time.Duration) meters {
	m := meters{used: used, before: map[metric]time.Duration{}}
	for name, of := range used {
		m.before[name] = of()
	}
	return m
}

// read puts the microseconds a message into s.
func (m meters) read(s sample, count int) {
	for name, of := range m.used {
		s[name] = float64((of() - m.before[name]).Microseconds()) / float64(count)
	}
}

// ofServer finds a server's processes by its scratch folder.
func ofServer(s *service.Server) func() time.Duration {
	return func() time.Duration { return cpuBelow(s.Dir()) }
}

// ofSelf is this process, with what clients and handlers in it use.
func ofSelf() time.Duration { return cpuOf("self") }

func ofProcess(pid int) func() time.Duration {
	return func() time.Duration { return cpuOf(strconv.Itoa(pid)) }
}

// cpuBelow is the processor time of all processes whose working folder is that
// one or below it.
func cpuBelow(folder string) (sum time.Duration) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		at, err := os.Readlink(link) // A process may have ended.
		if err == nil && (at == folder || strings.HasPrefix(at, folder+"/")) {
			sum += cpuOf(filepath.Base(filepath.Dir(link)))
		}
	}
	return sum
}

// cpuOf is the processor time of a process and of its children that have ended;
// 0 where there is no such process.
func cpuOf(pid string) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ") // A program's name may contain spaces.
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return 0
	}
	ticks := 0
	for _, field := range fields[11:15] {
		n, _ := strconv.Atoi(field)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}
