package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// record is what was measured of a part.
type record struct {
	Part, Revision, Machine string
	When                    time.Time
	Count, Repeat           int
	Quick                   bool
	// Load is how busy others kept the machine before all began: the load average.
	Load float64
	// SlowPages is how many percent of idle memory was slow to touch; Touched, whether
	// Redis' was not left idle.
	SlowPages         float64
	Touched           bool
	Versions, Skipped []string
	// Names are the contenders in their order, Samples theirs by repetition; nil
	// where one has failed.
	Names   []string
	Samples map[string][]sample
	Text    string
}

func (b *bench) newRecord(ctx context.Context, p part) *record {
	revision, err := b.output(ctx, "git", "rev-parse", "--short", "HEAD")
	if err != nil {
		revision = "unknown"
	}
	return &record{
		Part: p.name, Revision: revision, Machine: machine(), When: time.Now().UTC(), Count: b.count, Repeat: b.repeat, Quick: b.quick,
		Load: b.load, SlowPages: b.slow, Touched: b.touched, Samples: map[string][]sample{},
	}
}

func loadAverage() (load float64) {
	text, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(text), &load)
	return load
}

// machine says how large this one is.
func machine() string {
	text, _ := os.ReadFile("/proc/meminfo")
	var kilobytes int64
	_, _ = fmt.Sscanf(string(text), "MemTotal: %d kB", &kilobytes)
	return fmt.Sprintf("%d vCPU, %d GiB, %s/%s, servers and clients together", runtime.NumCPU(), (kilobytes+1<<19)>>20, runtime.GOOS, runtime.GOARCH)
}

// unfinished is what was kept of the same measuring, if something is missing in it;
// else r.
func (b *bench) unfinished(r *record, contenders []contender) (*record, error) {
	records, err := readRecords(b.kept)
	if err != nil {
		return nil, err
	}
	kept := records[r.Part]
	isSame := kept != nil && kept.Revision == r.Revision && kept.Machine == r.Machine && kept.Count == r.Count && kept.Repeat == r.Repeat &&
		kept.Quick == r.Quick && kept.Touched == r.Touched && slices.Equal(kept.Versions, r.Versions)
	for n := range r.Repeat {
		for _, c := range contenders {
			if isSame && !kept.has(c.name, n) {
				return kept, nil
			}
		}
	}
	return r, nil
}

// has says whether the contender was measured in that repetition.
func (r *record) has(name string, repetition int) bool {
	return repetition < len(r.Samples[name]) && r.Samples[name][repetition] != nil
}

func (r *record) add(name string, repetition int, s sample) {
	if !slices.Contains(r.Names, name) {
		r.Names = append(r.Names, name)
	}
	for len(r.Samples[name]) <= repetition {
		r.Samples[name] = append(r.Samples[name], nil)
	}
	r.Samples[name][repetition] = s
}

func (r *record) skip(why string) {
	if !slices.Contains(r.Skipped, why) {
		r.Skipped = append(r.Skipped, why)
	}
}

// values are what a contender had of a metric, sorted.
func (r *record) values(name string, m metric) []float64 {
	var found []float64
	for _, s := range r.Samples[name] {
		if value, has := s[m]; has {
			found = append(found, value)
		}
	}
	slices.Sort(found)
	return found
}

// ratios are one contender's metric by another's in the same repetition, sorted:
// what else the machine did then, both have felt.
func (r *record) ratios(name, base string, m metric) []float64 {
	var found []float64
	for n := range min(len(r.Samples[name]), len(r.Samples[base])) {
		value, has := r.Samples[name][n][m]
		if by := r.Samples[base][n][m]; has && by != 0 {
			found = append(found, value/by)
		}
	}
	slices.Sort(found)
	return found
}

func median(sorted []float64) float64 { return sorted[len(sorted)/2] }

// keep writes the record, all of it or nothing.
func (r *record) keep(folder string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("keep %s: %w", r.Part, err)
	}
	file := filepath.Join(folder, r.Part+".json")
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return fmt.Errorf("keep %s: %w", r.Part, err)
	}
	return os.Rename(file+".new", file)
}

// readRecords reads what was kept of all parts.
func readRecords(folder string) (map[string]*record, error) {
	records := map[string]*record{}
	for _, p := range parts {
		text, err := os.ReadFile(filepath.Join(folder, p.name+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		r := &record{}
		if err == nil {
			err = json.Unmarshal(text, r)
		}
		if err != nil {
			return nil, fmt.Errorf("read what was kept of %s: %w", p.name, err)
		}
		records[p.name] = r
	}
	return records, nil
}

// String shows a sample on one line, for whoever waits.
func (s sample) String() string {
	var fields []string
	for _, m := range slices.Sorted(maps.Keys(s)) {
		fields = append(fields, fmt.Sprintf("%s %.4g", m, s[m]))
	}
	return strings.Join(fields, ", ")
}
