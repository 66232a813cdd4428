//go:build !linux && !darwin

package nats

import "net"

// limitUnsent does nothing here: slow links have less precise deadlines.
func limitUnsent(*net.TCPConn, int) {}
