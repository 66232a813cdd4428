package operate

// Histogram counts observations by size.
type Histogram struct {
	// Bounds are the upper ends of the buckets, in seconds, rising. Counts are those of
	// each bucket alone; there is one more, of what is above all bounds.
	Bounds []float64
	Counts []uint64
}

// Minus is what was observed since an earlier state.
func (h Histogram) Minus(earlier Histogram) Histogram {
	since := Histogram{Bounds: h.Bounds, Counts: make([]uint64, len(h.Counts))}
	for i, n := range h.Counts {
		since.Counts[i] = n
		if i < len(earlier.Counts) && earlier.Counts[i] <= n {
			since.Counts[i] -= earlier.Counts[i]
		}
	}
	return since
}

// Count is how many were observed.
func (h Histogram) Count() (all uint64) {
	for _, n := range h.Counts {
		all += n
	}
	return all
}

// quantile estimates below what that part of all is, evenly spread in its bucket. Above
// all bounds it is the last one.
func (h Histogram) quantile(part float64) float64 {
	rank, below, least := part*float64(h.Count()), 0.0, 0.0
	for i, n := range h.Counts {
		if i == len(h.Bounds) {
			break
		}
		if below+float64(n) >= rank && n > 0 {
			return least + (h.Bounds[i]-least)*(rank-below)/float64(n)
		}
		below, least = below+float64(n), h.Bounds[i]
	}
	return least
}

// Percentiles are what half of all, and 99 of 100, are below.
func (h Histogram) Percentiles() (p50, p99 float64) {
	const half, nearlyAll = 0.5, 0.99
	return h.quantile(half), h.quantile(nearlyAll)
}
