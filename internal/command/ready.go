package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
)

// readyCommand is for supervisors that can only run a program, as Docker's HEALTHCHECK.
type readyCommand struct {
	fileFlag
	Timeout time.Duration `default:"3s" help:"Longest wait for the answer."`
}

func (readyCommand) Help() string {
	return `Asks the bridge that runs on this machine with this configuration whether it is ready, as GET /readyz does, and prints what it waits for. Use it for health
checks that can only run a program, since the image has no shell. It asks at admin.probes, or else at admin.listen, then without TLS.

Exit code 0: ready; 1: not ready, or nobody answers; 2: the configuration is wrong, or has no such address.

Example:

    bridge ready --config bridge.yaml`
}

func (c readyCommand) Run(p *program) error {
	cfg, err := loadConfig(p, c.Config)
	if err != nil {
		return err
	}
	url, err := readyURL(cfg.Admin)
	if err != nil {
		return &failure{code: "config", exit: exitUsage, cause: err}
	}
	ctx, cancel := context.WithTimeout(p.ctx, c.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("no bridge answers: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, response.Status, strings.Join(strings.Split(strings.TrimSpace(string(text)), "\n"), "; "))
	}
	_, err = p.stdout.Write(text)
	return err
}

// readyURL is where this machine asks.
func readyURL(admin config.Admin) (string, error) {
	address := admin.Probes
	if address == "" {
		address = admin.Listen
		switch {
		case address == "":
			return "", errors.New("admin.listen: the bridge has no listener; give it one, or admin.probes")
		case admin.TLS != nil:
			return "", errors.New("admin.probes: missing, and admin.listen has TLS; give the bridge admin.probes: 127.0.0.1:8081, which has /readyz alone")
		}
	}
	host, err := fromHere(address)
	return "http://" + host + "/readyz", err
}

// fromHere is where this machine reaches a listener of that address.
func fromHere(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err // Not so: the configuration was checked.
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), nil
}
