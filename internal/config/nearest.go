package config

import "fmt"

// DidYouMean is ", did you mean X?" where one of the known names is a slip of the pen
// away from the given one, else nothing.
func DidYouMean(name string, known []string) string {
	const third = 3
	nearest, least := "", len(name)/third+2 // Short names are not all alike.
	for _, candidate := range known {
		if d := slips(name, candidate); d < least {
			nearest, least = candidate, d
		}
	}
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %s?", nearest)
}

// slips is how many letters have to be changed, added, taken away or exchanged with
// their neighbour to turn a into b.
func slips(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			differs := 1
			if a[i] == b[j] {
				differs = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+differs)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
