//go:build !race

package window_test

const isRaced = false
