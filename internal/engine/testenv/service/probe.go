package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

const probeTimeout = time.Second

// exchange sends a request to addr and checks how the answer begins, or if
// want is empty only that there is one.
func exchange(ctx context.Context, addr string, request, want []byte) error {
	answer, err := converse(ctx, addr, request)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(answer, want) {
		return fmt.Errorf("answer %q", answer)
	}
	return nil
}

// converse sends a request to addr and returns the beginning of the answer.
func converse(ctx context.Context, addr string, request []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := conn.Write(request); err != nil {
		return nil, err
	}
	answer := make([]byte, 512)
	n, err := conn.Read(answer)
	return answer[:n], err
}

// logHas looks for a line in the log behind an offset.
func logHas(dir string, offset int64, line string) error {
	text, err := os.ReadFile(logPath(dir))
	if err != nil {
		return err
	}
	if offset > int64(len(text)) || !bytes.Contains(text[offset:], []byte(line)) {
		return errors.New("not in the log: " + line)
	}
	return nil
}
