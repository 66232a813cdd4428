package service

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

// Ports below the kernel's range for outgoing connections (from 32768 on
// Linux): a server that is down for a while would otherwise lose its port to
// some client's outgoing connection and could not start again.
const (
	firstPort = 12000
	lastPort  = 32000
)

// portsLock is the machine's, whatever TMPDIR is.
const portsLock = "/tmp/delaybridge-ports.lock"

// ReservePort finds a port that nobody listens on and keeps other test
// processes from taking it until free is called or this process ends. Byte n
// of one lock file stands for port n.
func ReservePort() (port int, free func(), err error) {
	lock, err := os.OpenFile(portsLock, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return 0, nil, fmt.Errorf("reserve port: %w", err)
	}
	_ = lock.Chmod(0o666) // several users may test on one machine
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if lockByte(lock, port, unix.F_WRLCK) != nil {
			continue
		}
		if canListen(port) {
			return port, func() { _ = lock.Close() }, nil
		}
		_ = lockByte(lock, port, unix.F_UNLCK)
	}
	_ = lock.Close()
	return 0, nil, errors.New("reserve port: none is free")
}

// lockByte locks for the open file, not for the process, so that two
// reservations of one process keep apart, too.
func lockByte(f *os.File, n int, kind int16) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{
		Type: kind, Whence: io.SeekStart, Start: int64(n), Len: 1,
	})
}

// canListen binds to the port and does not listen. A process that is forked at this moment has
// a copy of the socket until it runs its program: one that listened would keep the server out.
func canListen(port int) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) == nil &&
		unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}) == nil
}
