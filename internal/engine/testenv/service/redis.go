package service

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// redisProgramEnv names another program to run as redis-server: another
// version, or Valkey.
const redisProgramEnv = "DELAYBRIDGE_TEST_REDIS_SERVER"

func redisProgram(name string) (string, error) {
	name = cmp.Or(name, os.Getenv(redisProgramEnv), "redis-server")
	bin, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %s", ErrMissing, name)
	}
	return bin, nil
}

// RedisVersion is what the program that all tests take says of itself, as "Redis server v=7.0.15 …"
// or "Valkey server v=8.1.1 …".
func RedisVersion(ctx context.Context) (string, error) {
	bin, err := redisProgram("")
	if err != nil {
		return "", err
	}
	text, err := exec.CommandContext(ctx, bin, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", bin, err)
	}
	return string(text), nil
}

// StartRedis runs redis-server without persistence; args are appended to its
// arguments and override ours, as in "--appendonly", "yes".
func StartRedis(ctx context.Context, args ...string) (*Server, error) {
	return StartRedisProgram(ctx, "", args...)
}

// StartRedisProgram is [StartRedis] with a program of that name or path; empty is
// the one that all tests take.
func StartRedisProgram(ctx context.Context, program string, args ...string) (*Server, error) {
	s, err := prepareRedis(ctx, program, args...)
	if err != nil {
		return nil, err
	}
	return s.start(ctx)
}

func prepareRedis(ctx context.Context, program string, args ...string) (*Server, error) {
	bin, err := redisProgram(program)
	if err != nil {
		return nil, err
	}
	s, err := newServer(ctx, "redis")
	if err != nil {
		return nil, err
	}
	s.url = "redis://" + s.Addr() + "/0"
	s.argv = append([]string{
		bin, "--port", strconv.Itoa(s.port), "--bind", s.host.IP, "--protected-mode", "no",
		"--dir", s.dir, "--save", "", "--daemonize", "no",
	}, args...)
	s.ready = s.redisReady
	return s, nil
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
