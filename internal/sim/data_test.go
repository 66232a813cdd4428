package sim

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// hash is a hash of Redis. It remembers the order in which its fields came, as Redis does
// while it is small.
type hash struct {
	at     map[string]int // in fields
	fields []field
}

type field struct {
	name, value string
	isGone      bool
}

func newHash() *hash { return &hash{at: map[string]int{}} }

func (h *hash) get(name string) (string, bool) {
	i, ok := h.at[name]
	if !ok {
		return "", false
	}
	return h.fields[i].value, true
}

func (h *hash) set(name, value string) (isNew bool) {
	if i, ok := h.at[name]; ok {
		h.fields[i].value = value
		return false
	}
	h.at[name] = len(h.fields)
	h.fields = append(h.fields, field{name: name, value: value})
	return true
}

func (h *hash) del(name string) bool {
	i, ok := h.at[name]
	if !ok {
		return false
	}
	delete(h.at, name)
	h.fields[i] = field{isGone: true}
	if len(h.fields) > 2*len(h.at)+16 {
		h.fields = slices.DeleteFunc(h.fields, func(f field) bool { return f.isGone })
		for n, f := range h.fields {
			h.at[f.name] = n
		}
	}
	return true
}

func (h *hash) each(do func(name, value string)) {
	for _, f := range h.fields {
		if !f.isGone {
			do(f.name, f.value)
		}
	}
}

func (h *hash) clone() *hash { return &hash{maps.Clone(h.at), slices.Clone(h.fields)} }

// sorted is a sorted set of Redis.
type sorted struct {
	scores map[string]float64
	all    []scored
}

type scored struct {
	score  float64
	member string
}

func newSorted() *sorted { return &sorted{scores: map[string]float64{}} }

func compareScored(a, b scored) int {
	return cmp.Or(cmp.Compare(a.score, b.score), strings.Compare(a.member, b.member))
}

func (z *sorted) add(member string, score float64) (isNew bool) {
	old, known := z.scores[member]
	if known {
		if old == score {
			return false
		}
		z.cut(scored{old, member})
	}
	z.scores[member] = score
	at, _ := slices.BinarySearchFunc(z.all, scored{score, member}, compareScored)
	z.all = slices.Insert(z.all, at, scored{score, member})
	return !known
}

func (z *sorted) cut(s scored) {
	if at, found := slices.BinarySearchFunc(z.all, s, compareScored); found {
		z.all = slices.Delete(z.all, at, at+1)
	}
}

func (z *sorted) del(member string) bool {
	score, known := z.scores[member]
	if known {
		delete(z.scores, member)
		z.cut(scored{score, member})
	}
	return known
}

// between are the places of the scores from one bound to the other, as "5", "(5", "-inf".
func (z *sorted) between(least, most string) (from, to int) {
	low, lowOut := bound(least)
	high, highOut := bound(most)
	from = sort.Search(len(z.all), func(i int) bool { return z.all[i].score > low || !lowOut && z.all[i].score == low })
	to = sort.Search(len(z.all), func(i int) bool { return z.all[i].score > high || highOut && z.all[i].score == high })
	return from, max(from, to)
}

// ranks are the places from one rank to another, where negative ones count from the end.
func (z *sorted) ranks(start, stop int) (from, to int) {
	n := len(z.all)
	if start < 0 {
		start = max(0, n+start)
	}
	if stop < 0 {
		stop = n + stop
	}
	from, to = min(start, n), min(stop+1, n)
	return from, max(from, to)
}

func (z *sorted) clone() *sorted { return &sorted{maps.Clone(z.scores), slices.Clone(z.all)} }

func bound(text string) (score float64, isOut bool) {
	if strings.HasPrefix(text, "(") {
		text, isOut = text[1:], true
	}
	switch text {
	case "-inf":
		return math.Inf(-1), isOut
	case "+inf", "inf":
		return math.Inf(1), isOut
	}
	score, _ = strconv.ParseFloat(text, 64)
	return score, isOut
}

// printed is a score as Redis prints it.
func printed(score float64) string {
	if score == math.Trunc(score) && math.Abs(score) < 1e17 {
		return strconv.FormatInt(int64(score), 10)
	}
	return strconv.FormatFloat(score, 'g', 17, 64)
}
