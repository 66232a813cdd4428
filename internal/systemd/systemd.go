// Package systemd tells systemd how the process is, by the protocol of sd_notify(3): that it is
// ready, lives, and stops. Where no systemd has asked for that, it says nothing.
//
// It does not know what being alive means.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// What systemd is told.
const (
	Ready    = "READY=1"
	Alive    = "WATCHDOG=1"
	Stopping = "STOPPING=1"
)

// sendTimeout bounds one message: it waits where systemd's buffer is full.
const sendTimeout = time.Second

// Supervisor is the systemd that has started this process, or nobody. Its methods may be
// called at the same time.
type Supervisor struct {
	socket   string
	watchdog time.Duration
}

// New finds the supervisor of the process pid in its environment (NAME=value each, as
// [os.Environ] returns it).
func New(environ []string, pid int) (*Supervisor, error) {
	env := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	s := &Supervisor{socket: env["NOTIFY_SOCKET"]}
	// The variables are inherited: a child must not take its parent's watchdog for its own.
	isOurs := env["WATCHDOG_PID"] == "" || env["WATCHDOG_PID"] == strconv.Itoa(pid)
	if text := env["WATCHDOG_USEC"]; text != "" && s.socket != "" && isOurs {
		microseconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || microseconds <= 0 {
			return nil, fmt.Errorf("WATCHDOG_USEC=%s is not a number of microseconds", text)
		}
		s.watchdog = time.Duration(microseconds) * time.Microsecond
	}
	return s, nil
}

// Watchdog is how long systemd waits for [Alive] before it ends the process; 0 is for ever.
func (s *Supervisor) Watchdog() time.Duration { return s.watchdog }

// Send tells systemd a state. It takes a second at most.
func (s *Supervisor) Send(ctx context.Context, state string) error {
	if s.socket == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unixgram", s.socket)
	if err != nil {
		return fmt.Errorf("tell systemd %s: %w", state, err)
	}
	deadline, _ := ctx.Deadline()
	err = conn.SetWriteDeadline(deadline)
	if err == nil {
		_, err = io.WriteString(conn, state)
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("tell systemd %s: %w", state, err)
	}
	return nil
}
