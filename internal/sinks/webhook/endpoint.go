package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

const (
	// idleFor is how long a connection is kept unused: less than servers do, the shortest of
	// which keep theirs for 5 s. What goes out as the server closes is Unknown.
	idleFor = 4 * time.Second
	// silence is how long a connection of HTTP/2 may be without a word until it is asked for
	// one, and pongTimeout how long that may take: requests that share it have no deadline of
	// the connection's.
	silence     = 5 * time.Second
	pongTimeout = 5 * time.Second
)

// endpoint is where the messages of one topic go. It has connections of its own: on a shared
// one, an endpoint that reads slowly would hold up its neighbour.
type endpoint struct {
	*overhttp.Slots

	name          string
	url           *url.URL
	files         tlsclient.Files
	secrets       *secret.WatchedFile[[]signer]
	authorization *secret.WatchedFile[string] // nil if there is none
	dialer        overhttp.Dialer
	client        overhttp.Client
}

func newEndpoint(name string, config Config, logger *slog.Logger) (*endpoint, error) {
	settings := config.Endpoints[name]
	e := &endpoint{name: name, files: config.files(), Slots: overhttp.NewSlots(config.requests(), refuse)}
	var err error
	if e.url, err = url.Parse(settings.URL); err != nil {
		return nil, errors.New("url: is no valid URL")
	}
	if e.secrets, err = secret.Watch(settings.Secrets, "secrets", parseSecrets, logger); err != nil {
		return nil, err
	}
	if settings.Authorization != "" {
		if e.authorization, err = secret.Watch(settings.Authorization, "authorization", parseAuthorization, logger); err != nil {
			return nil, err
		}
	}
	e.dialer = overhttp.Dialer{Files: e.files, Protocols: []string{"h2", "http/1.1"}}
	e.client.Transport = e.dialer.Transport(config.requests(), idleFor)
	e.client.Transport.ForceAttemptHTTP2 = true
	e.client.Transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: pongTimeout}
	return e, nil
}

// ping makes a connection.
func (e *endpoint) ping(ctx context.Context) error {
	if err := e.dialer.Ping(ctx, e.url); err != nil {
		return fmt.Errorf("endpoint %s: %w", e.name, err)
	}
	return nil
}
