//go:build !race

package testenv

// IsRaced reports whether the race detector is on.
const IsRaced = false
