//go:build race

package poller

const isRaced = true
