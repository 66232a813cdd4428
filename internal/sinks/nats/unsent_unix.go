//go:build linux || darwin

package nats

import (
	"net"

	"golang.org/x/sys/unix"
)

// limitUnsent makes a write wait while the kernel holds that many bytes that it has
// not sent yet. If the system refuses, slow links have less precise deadlines.
func limitUnsent(conn *net.TCPConn, bytes int) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes)
	})
}
