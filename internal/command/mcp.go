package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/api"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/mcp"
)

// toolTimeout is how long a tool may take: longer than the API gives a call.
const toolTimeout = 20 * time.Second

// mcpCommand serves tools to a language model, which are calls of a running bridge: it decides by the token what may be done, and
// writes it down.
type mcpCommand struct {
	Config string `short:"c" env:"${config_variable}" placeholder:"FILE" help:"The configuration file, to find the bridge on this machine; not needed with --url."`
	apiFlags
	Write  bool `help:"Offer the tools that change something, too: pause, cancel, reschedule, redrive and the like, as far as the token's role allows."`
	Bodies bool `help:"Show bodies and headers of messages to the model, too."`
}

func (mcpCommand) Help() string {
	return `Serves the Model Context Protocol on standard input and output, so that an assistant that speaks it can ask a running bridge what waits, what is late and why. A client starts it.
Its tools are calls of the HTTP API, with the rights of the token: give the assistant one of its own, with the role viewer. Without --write it offers none that changes anything. Under https, the system must
know the authority of the bridge's certificate; SSL_CERT_FILE names a file with another one.

Example:

    bridge mcp --url http://10.0.0.7:8080 --token-file token.txt`
}

func (c mcpCommand) Run(p *program) error {
	var admin config.Admin
	switch {
	case c.URL == "" && c.Config == "":
		return usagef("give --url, or --config to find the bridge on this machine")
	case c.URL == "":
		cfg, err := loadConfig(p, c.Config)
		if err != nil {
			return err
		}
		admin = cfg.Admin
	}
	address, err := c.address(admin)
	if err != nil {
		return err
	}
	document, err := api.Document(p.version())
	if err != nil {
		return err
	}
	tools, err := mcp.New(document, mcp.Options{Write: c.Write, Bodies: c.Bodies}, func(ctx context.Context, method, path string, body []byte) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, toolTimeout)
		defer cancel()
		answer, err := c.ask(ctx, method, address+path, body)
		if f, ok := errors.AsType[*failure](err); ok {
			return nil, fmt.Errorf("%s: %w", f.code, err)
		}
		return answer, err
	})
	if err != nil {
		return err
	}
	return (&mcp.Server{Version: p.version(), Tools: tools}).Serve(p.ctx, p.stdin, p.stdout)
}
