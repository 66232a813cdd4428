// Command overlay writes, into a folder, copies of some files of Go's runtime that leave nothing
// to chance within a bubble of testing/synctest, and an overlay.json for go build -overlay. With
// it the same seed tells the same story in every process: which case of a select is taken, in
// which order a map is walked, and which of two timers fires first that are due at once, is
// random otherwise, on purpose; and a goroutine may be interrupted where the machine is busy.
// Two changes are for speed alone: memory comes in huge pages, and goroutines begin with larger stacks.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// change puts one text in the place of another, which stands in the file once.
type change struct{ file, old, new string }

var changes = []change{
	{"synctest.go", "	active  int // other sources of activity\n", "	active  int // other sources of activity\n	rng     uint64 // how many were asked for in this instant\n	rngAt   int64\n	selects uint64 // so many\n"},
	{"rand.go", "func rand() uint64 {\n", `func rand() uint64 {
	if b := getg().bubble; b != nil {
		if b.rngAt != b.now {
			b.rng, b.rngAt = 0, b.now
		}
		b.rng++
		return mixed(uint64(b.now) + b.rng<<48)
	}
`},
	// What is asked for may depend on what the process has done before, so there is no one
	// sequence: all comes from the time.
	{"rand.go", "//go:linkname maps_rand internal/runtime/maps.rand\nfunc maps_rand() uint64 {\n", `//go:nosplit
func mixed(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

//go:linkname maps_rand internal/runtime/maps.rand
func maps_rand() uint64 {
	if b := getg().bubble; b != nil {
		return mixed(uint64(b.now))
	}
`},
	{"rand.go", "	globalRand.state.Init(*seed)\n", "	for i := range seed {\n		seed[i] = byte(i + 1)\n	}\n	globalRand.state.Init(*seed)\n"},
	{"select.go", "		j := cheaprandn(uint32(norder + 1))\n", `		var j uint32
		if b := getg().bubble; b != nil {
			b.selects++
			j = uint32(mixed(b.selects) % uint64(norder+1))
		} else {
			j = cheaprandn(uint32(norder + 1))
		}
`},
	{"time.go", "			t.rand = cheaprand()\n", "			fakeTimers++\n			t.rand = fakeTimers\n"},
	{"time.go", "func (ts *timers) lock() {\n", "var fakeTimers uint32 // of those of bubbles, of which one is at a time\n\nfunc (ts *timers) lock() {\n"},
	// A story frees no memory: in pages of 4 KB, much of its time would go by until it has them.
	{"mem_linux.go", "	setVMAName(p, n, vmaName)\n\n	// Disable huge pages", "	setVMAName(p, n, vmaName)\n	sysHugePageOS(v, n)\n\n	// Disable huge pages"},
	// Goroutines of the product need more than 2 KB, so each would be moved several times.
	{"proc.go", "		newg = malg(stackMin)\n", "		newg = malg(int32(startingStackSize))\n"},
	{"stack.go", "var startingStackSize uint32 = fixedStack\n", "var startingStackSize uint32 = 16384\n"},
	{"stack.go", "func gcComputeStartingStackSize() {\n", "func gcComputeStartingStackSize() {\n	return\n"},
	// The queue of all threads is looked at now and then; that of the thread is in order.
	{"proc.go", "		runqput(pp, gp, true)\n	} else {\n		lock(&sched.lock)\n", "		runqput(pp, gp, true)\n	} else if gp.bubble != nil {\n		runqput(pp, gp, false)\n	} else {\n		lock(&sched.lock)\n"},
	{"proc.go", "	gp.preempt = true\n\n	// Every call in a goroutine checks for stack overflow by\n", "	if gp.bubble != nil {\n		return false\n	}\n	gp.preempt = true\n\n	// Every call in a goroutine checks for stack overflow by\n"},
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(folder string) error {
	folder, err := filepath.Abs(folder)
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err != nil {
		return err
	}
	replace, texts := map[string]string{}, map[string]string{}
	for _, c := range changes {
		original := filepath.Join(runtime.GOROOT(), "src", "runtime", c.file) //nolint:staticcheck // go run tells it
		text, known := texts[original]
		if !known {
			b, err := os.ReadFile(original)
			if err != nil {
				return err
			}
			text = string(b)
		}
		if strings.Count(text, c.old) != 1 {
			return fmt.Errorf("%s of %s is another one than is known: change it here", c.file, runtime.Version())
		}
		texts[original] = strings.Replace(text, c.old, c.new, 1)
		replace[original] = filepath.Join(folder, c.file)
	}
	for original, text := range texts {
		if err := os.WriteFile(replace[original], []byte(text), 0o644); err != nil { //nolint:gosec // it is source
			return err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "overlay.json"), b, 0o644) //nolint:gosec // as above
}
