package sim

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// shrink leaves out as many decisions of a seed as it can while the story fails in the same way,
// by halves first (Zeller's delta debugging), and says which are left.
func shrink(t *testing.T, o outcome, leftOut []int) {
	kept, until := o.Decisions, failedAt(o.Failed)
	fails := func(list []int) bool {
		leaveOut := slices.Clone(leftOut)
		for _, d := range o.Decisions {
			if !slices.Contains(list, d) {
				leaveOut = append(leaveOut, d)
			}
		}
		// What is left fails as early, or not much later: else the whole hour is told each time.
		other := child(t.Context(), o.Seed, leaveOut, "-until", (until + until/2 + 10*time.Second).String())
		return rule(other.Failed) == rule(o.Failed)
	}
	var before []int // What comes after the failure is not needed.
	for _, d := range newPlan(o.Seed, nil).decisions {
		if d.at <= until && slices.Contains(kept, d.index) {
			before = append(before, d.index)
		}
	}
	if fails(before) {
		kept = before
	}
	for size := (len(kept) + 1) / 2; size > 0; {
		shorter := false
		for from := 0; from < len(kept); {
			rest := slices.Concat(kept[:from], kept[min(from+size, len(kept)):])
			if len(rest) < len(kept) && fails(rest) {
				kept, shorter = rest, true
			} else {
				from += size
			}
		}
		if size == 1 && !shorter {
			break
		}
		if !shorter || size > len(kept) {
			size = max(1, size/2)
		}
	}
	var leaveOut []string
	for _, d := range o.Decisions {
		if !slices.Contains(kept, d) {
			leaveOut = append(leaveOut, strconv.Itoa(d))
		}
	}
	for _, d := range newPlan(o.Seed, nil).decisions {
		if slices.Contains(kept, d.index) {
			t.Logf("decision %d at %s: %s", d.index, d.at, d.kind)
		}
	}
	t.Logf("%d of %d decisions are left", len(kept), len(o.Decisions))
	t.Logf("-seed %d -without %s", o.Seed, strings.Join(leaveOut, ","))
}

// failedAt is when a failure was told.
func failedAt(failed string) time.Duration {
	at, _, _ := strings.Cut(failed, ": ")
	d, _ := time.ParseDuration(at)
	return d
}

// rule is which rule a failure names.
func rule(failed string) string {
	_, text, _ := strings.Cut(failed, ": ")
	text, _, _ = strings.Cut(text, ":")
	return text
}
