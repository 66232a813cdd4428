package service

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
)

// StartRedis runs redis-server without persistence; args are appended to its
// arguments and override ours, as in "--appendonly", "yes".
func StartRedis(ctx context.Context, args ...string) (*Server, error) {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: redis-server", ErrMissing)
	}
	s, err := newServer("redis")
	if err != nil {
		return nil, err
	}
	s.url = "redis://" + s.Addr() + "/0"
	s.argv = append([]string{
		bin, "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1",
		"--dir", s.dir, "--save", "", "--daemonize", "no",
	}, args...)
	s.ready = s.redisReady
	return s.start(ctx)
}

// redisReady accepts a refusal for lack of a password as an answer, since the
// caller may have set one; LOADING is none.
func (s *Server) redisReady(ctx context.Context, _ int64) error {
	ping := []byte("*1\r\n$4\r\nPING\r\n")
	err := exchange(ctx, s.Addr(), ping, []byte("+PONG"))
	if err == nil {
		return nil
	}
	if exchange(ctx, s.Addr(), ping, []byte("-NOAUTH")) == nil {
		return nil
	}
	return err
}
