package membership

import (
	"fmt"
	"slices"
	"strings"
)

// without are those of a that are not in b.
func without[T comparable](a, b []T) []T {
	left := []T{}
	for _, one := range a {
		if !slices.Contains(b, one) {
			left = append(left, one)
		}
	}
	return left
}

// mostListed is how many things one line of the log lists.
const mostListed = 32

// joined lists things in a line of the log, not too many.
func joined[T any](list []T) string {
	var text strings.Builder
	for i, one := range list {
		if i == mostListed {
			fmt.Fprintf(&text, " and %d more", len(list)-i)
			break
		}
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprint(&text, one)
	}
	return text.String()
}
