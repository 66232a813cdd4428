package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// rabbitControl is the package's own script, as rabbitScript is.
var rabbitControl = filepath.Join(filepath.Dir(rabbitScript), "rabbitmqctl")

var errNotRabbit = errors.New("the server is no RabbitMQ")

// RabbitEval evaluates an Erlang expression in a server that [StartRabbitMQ] has
// started: for what no client of it can do.
func (s *Server) RabbitEval(ctx context.Context, expression string) error {
	if s.name != "rabbitmq" {
		return fmt.Errorf("%w: %s", errNotRabbit, s.name)
	}
	command := exec.CommandContext(ctx, rabbitControl, "eval", expression)
	command.Env = append(os.Environ(), s.env...)
	return s.host.Do(func() error {
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("rabbitmqctl eval: %w: %s", err, output)
		}
		return nil
	})
}
