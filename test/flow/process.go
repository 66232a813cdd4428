package flow

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of CPU time in /proc, the same on every Linux.
const ticksPerSecond = 100

// CPU is the processor time that a process has used, in steps of 10 ms; 0 where
// there is no such process.
func CPU(pid int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ") // A program's name may contain spaces.
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticksPerSecond
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
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	values := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, text, found := strings.Cut(lines.Text(), " ")
		if !found || !slices.Contains(names, name) {
			continue
		}
		if values[name], err = strconv.ParseFloat(text, 64); err != nil {
			return nil, fmt.Errorf("metric %s: %w", name, err)
		}
	}
	if len(values) < len(names) {
		return values, fmt.Errorf("metrics %v: found %d: %s", names, len(values), response.Status)
	}
	return values, nil
}
