package trial

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of CPU time in /proc, the same on every Linux.
const ticksPerSecond = 100

// CPU is the processor time that a process has used, in steps of 10 ms; 0 if
// there is no such process.
func CPU(pid int) time.Duration { return processorTime(strconv.Itoa(pid), 2) }

// CPUBelow is that of all processes whose working folder is that one or below it, and of
// their children that have ended: all of a server.
func CPUBelow(folder string) (sum time.Duration) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		at, err := os.Readlink(link) // A process may have ended.
		if err == nil && (at == folder || strings.HasPrefix(at, folder+"/")) {
			sum += processorTime(filepath.Base(filepath.Dir(link)), 4)
		}
	}
	return sum
}

// processorTime adds the first of the times in user mode, in the kernel, and both again of
// the children that have ended.
func processorTime(pid string, columns int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ") // A program's name may contain spaces.
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return 0
	}
	ticks := 0
	for _, field := range fields[11 : 11+columns] {
		n, _ := strconv.Atoi(field)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// CPU is the processor time that the process has used.
func (b *Bridge) CPU() time.Duration { return CPU(b.command.Process.Pid) }

// ResidentBytes is the memory that the process has in RAM.
func (b *Bridge) ResidentBytes() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", b.command.Process.Pid))
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// Metric reads a metric from /metrics; its name includes its labels. Reading
// costs Redis a look at each shard.
func (b *Bridge) Metric(ctx context.Context, name string) (float64, error) {
	values, err := b.Metrics(ctx, name)
	return values[name], err
}

// Metrics reads several metrics at once.
func (b *Bridge) Metrics(ctx context.Context, names ...string) (map[string]float64, error) {
	values := map[string]float64{}
	err := b.get(ctx, "/metrics", func(text io.Reader) (err error) {
		for lines := bufio.NewScanner(text); lines.Scan(); {
			name, text, found := strings.Cut(lines.Text(), " ")
			if !found || !slices.Contains(names, name) {
				continue
			}
			if values[name], err = strconv.ParseFloat(text, 64); err != nil {
				return fmt.Errorf("metric %s: %w", name, err)
			}
		}
		return nil
	})
	if err == nil && len(values) < len(names) {
		err = fmt.Errorf("metrics %v: found %d", names, len(values))
	}
	return values, err
}
