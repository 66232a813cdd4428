package sim

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// shrink leaves out as many decisions of a seed as it can while the story fails in the same way,
// by halves first (Zeller's delta debugging), and says which are left.
func shrink(t *testing.T, o outcome, leftOut []int) {
	kept := o.Decisions
	fails := func(list []int) bool {
		leaveOut := slices.Clone(leftOut)
		for _, d := range o.Decisions {
			if !slices.Contains(list, d) {
				leaveOut = append(leaveOut, d)
			}
		}
		other := child(t.Context(), o.Seed, leaveOut)
		return rule(other.Failed) == rule(o.Failed)
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
	t.Logf("-seed %d -without %s", o.Seed, strings.Join(leaveOut, ","))
}

// rule is which rule a failure names.
func rule(failed string) string {
	_, text, _ := strings.Cut(failed, ": ")
	text, _, _ = strings.Cut(text, ":")
	return text
}
