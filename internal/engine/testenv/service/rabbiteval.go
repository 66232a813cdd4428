package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

var (
	errNotRabbit = errors.New("the server is no RabbitMQ")
	errRabbit    = errors.New("RabbitMQ's answer")
)

// RabbitEval evaluates an Erlang expression in a server that [StartRabbitMQ] has
// started: for what no client of it can do. It asks by Erlang's own program,
// since rabbitmqctl takes a hundred times as long.
func (s *Server) RabbitEval(ctx context.Context, expression string) error {
	if s.name != "rabbitmq" {
		return fmt.Errorf("%w: %s", errNotRabbit, s.name)
	}
	command := exec.CommandContext(ctx, "erl_call", "-r", "-sname", s.rabbitNode(), "-e") // As a node of a random name: two of one name are refused.
	command.Env = append(os.Environ(), s.env...)                                          // The cookie is in HOME.
	command.Stdin = strings.NewReader(expression + "\n")
	return s.host.Do(func() error {
		output, err := command.CombinedOutput()
		if err == nil && !bytes.HasPrefix(output, []byte("{ok, ")) {
			err = errRabbit
		}
		if err != nil {
			return fmt.Errorf("erl_call: %w: %s", err, output)
		}
		return nil
	})
}

func (s *Server) rabbitNode() string { return "delaybridge-" + strconv.Itoa(s.port) + "@localhost" }
