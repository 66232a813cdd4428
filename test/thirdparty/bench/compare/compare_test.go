package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

func TestLoadIsMadeOnce(t *testing.T) {
	t.Parallel()
	for _, l := range []load{{first: 7, count: 1001, size: 500, callers: 3}, {count: 100, size: 1, callers: 64}, {count: 3, size: 500, callers: 2}} {
		var mu sync.Mutex
		made := map[int]int{}
		err := l.by(t.Context(), func(_ context.Context, from, n int) error {
			mu.Lock()
			defer mu.Unlock()
			for i := range n {
				made[from+i]++
			}
			return nil
		})
		require.NoError(t, err)
		assert.Len(t, made, l.count)
		for i := range l.count {
			assert.Equal(t, 1, made[l.first+i])
		}
	}
}

func TestArrivalsCountOnceAndTheirOwnOnly(t *testing.T) {
	t.Parallel()
	a := newArrivals(load{first: 10, count: 2})
	at := time.Unix(1000, 0)
	for _, i := range []int{9, 10, 10, 12} {
		a.noteAt(identity(i), at)
	}
	a.noteAt("not ours", at)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := a.wait(ended)
	require.ErrorIs(t, err, context.Canceled)
	a.noteAt(identity(11), at.Add(time.Second))
	came, err := a.wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []time.Time{at, at.Add(time.Second)}, came)
	assert.EqualValues(t, 1, a.twice.Load())
}

func TestLateness(t *testing.T) {
	t.Parallel()
	l := load{first: 5, count: 3, due: time.Unix(1000, 0), step: time.Second}
	s := sample{}
	lateness(s, []time.Time{l.due.Add(2 * time.Millisecond), l.due.Add(time.Second - 3*time.Millisecond), l.due.Add(2*time.Second + 40*time.Millisecond)}, l)
	assert.InDelta(t, 2, s[lateMedian], 1e-6)
	assert.InDelta(t, 40, s[lateMost], 1e-6)
	assert.InDelta(t, 3, s[earliest], 1e-6)
}

// filled is a record of two contenders, of which one has failed once.
func filled() *record {
	r := &record{Part: "nats", Repeat: 3, Samples: map[string][]sample{}}
	for n, rate := range []float64{100_000, 150_000, 120_000} {
		r.add(toNATS, n, sample{drainRate: rate, cpuClient: 3})
		if n != 1 {
			r.add(alikeNATS, n, sample{drainRate: 200_000, cpuClient: 2})
		}
	}
	return r
}

func TestRatiosAreThoseWithinARepetition(t *testing.T) {
	t.Parallel()
	r := filled()
	assert.Equal(t, []float64{0.5, 0.6}, r.ratios(toNATS, alikeNATS, drainRate))
	assert.Equal(t, []float64{100_000, 120_000, 150_000}, r.values(toNATS, drainRate))
	assert.Empty(t, r.ratios(toNATS, alikeNATS, lateMedian))
	assert.Empty(t, r.ratios(toNATS, "nobody", drainRate))
}

func TestTables(t *testing.T) {
	t.Parallel()
	p, err := settings{only: "nats"}.parts()
	require.NoError(t, err)
	text := p[0].markdown(filled())
	assert.Contains(t, text, "| delaybridge to NATS / nats.go, our headers | 0.60 [0.50, 0.60] | 1.50 [1.50, 1.50] (goal ≤ 1.20) |")
	assert.Contains(t, text, "| delaybridge to NATS | 120 k | 3.0 |\n")
	assert.NotContains(t, text, "p99", "a column that nobody has")
}

func TestMachines(t *testing.T) {
	t.Parallel()
	assert.Contains(t, machines(map[string]*record{"nats": filled()}), "| processors | bridge | bridge |\n| --- | ---: | ---: |\n| delaybridge to NATS | 0.3 | 3.0 |\n")
	assert.Empty(t, machines(nil))
}

// startSleep starts a program that does nothing until it is ended.
func startSleep(t *testing.T) (pid int, end func()) {
	t.Helper()
	program := exec.CommandContext(t.Context(), "sleep", "3600")
	require.NoError(t, program.Start())
	end = sync.OnceFunc(func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	})
	t.Cleanup(end)
	return program.Process.Pid, end
}

func TestShareIsAsLongAsItsProcess(t *testing.T) {
	t.Parallel()
	pid, end := startSleep(t)
	free, err := share(pid, primaryShare)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the measurement leaves it out, too: %v", err)
	}
	require.NoError(t, err)
	group, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	require.NoError(t, err)
	assert.Contains(t, string(group), "delaybridge-bench-")
	end()
	require.NoError(t, free())
}

func TestProgramsOfThisOneAreFound(t *testing.T) {
	t.Parallel()
	pid, _ := startSleep(t)
	assert.Contains(t, children(os.Getpid()), pid)
	touch(pid, make([]byte, 4096))
	touch(1<<30, nil) // There is none.
}

func TestPlotIsXML(t *testing.T) {
	t.Parallel()
	text := plot(map[string]*record{"nats": filled()})
	assert.Contains(t, text, "120 k")
	for decoder := xml.NewDecoder(strings.NewReader(text)); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

func TestRecordsAreKept(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := filled()
	require.NoError(t, r.keep(folder))
	found, err := readRecords(folder)
	require.NoError(t, err)
	assert.Equal(t, map[string]*record{"nats": r}, found)
}

func TestWhatWasBrokenOffGoesOn(t *testing.T) {
	t.Parallel()
	b := &bench{settings: settings{kept: t.TempDir(), repeat: 3}}
	require.NoError(t, filled().keep(b.kept))
	both := []contender{{name: toNATS}, {name: alikeNATS}}
	fresh := &record{Part: "nats", Repeat: 3}

	r, err := b.unfinished(fresh, both)
	require.NoError(t, err)
	assert.Equal(t, filled(), r)
	assert.True(t, r.has(toNATS, 2))
	assert.False(t, r.has(alikeNATS, 1), "it had failed")

	r, err = b.unfinished(fresh, both[:1])
	require.NoError(t, err)
	assert.Same(t, fresh, r, "nothing is missing, so it begins anew")

	other := &record{Part: "nats", Repeat: 3, Revision: "another"}
	r, err = b.unfinished(other, both)
	require.NoError(t, err)
	assert.Same(t, other, r)
}

func TestUnknownPart(t *testing.T) {
	t.Parallel()
	_, err := settings{only: "nats,nobody"}.parts()
	assert.ErrorContains(t, err, "nobody")
}

// TestPageExplains: what the page says behind its tables is not written there alone, since -write would drop it.
func TestPageExplains(t *testing.T) {
	t.Parallel()
	root, err := service.Root()
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "performance.md"))
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(string(page), explained))
}

func TestVersions(t *testing.T) {
	t.Parallel()
	assert.Regexp(t, `^Kafka \d+\.\d+\.\d+$`, kafkaVersion())
	assert.Regexp(t, `^BullMQ \d+\.\d+\.\d+$`, "BullMQ "+bullVersion())
	assert.Regexp(t, `^v\d+\.\d+\.\d+$`, moduleVersion("github.com/segmentio/kafka-go"))
}
