package webhook

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

const (
	// endpointsMost bounds the endpoints of a sink: each has connections of its own.
	endpointsMost = 256
	// requestsDefault and requestsMost bound the requests to an endpoint that are under way.
	requestsDefault = 16
	requestsMost    = 256
)

// Config says where messages are posted.
type Config struct {
	Endpoints map[string]Endpoint `yaml:"endpoints" required:"true" doc:"Where messages are posted, by name: the topic of a message is the name of an endpoint."`
	Requests  int                 `yaml:"requests" default:"16" min:"1" max:"256" doc:"Most requests to each endpoint that are under way at once."`

	// TLS verifies the endpoints; nil uses the system's roots.
	TLS *tlsclient.Files `yaml:"-"`
	// PublishTimeout is how long a request may go without progress, from its hand-over to a
	// connection to its answer; 0 means DefaultPublishTimeout.
	PublishTimeout time.Duration `yaml:"-"`
}

// Endpoint is where the messages of one topic go. Its files are read again when they change.
type Endpoint struct {
	URL           string `yaml:"url" required:"true" doc:"Where its messages are posted, https://. It is shown where the configuration is, so keep secrets out of it."`
	Secrets       string `yaml:"secrets" required:"true" file:"true" doc:"File of the secrets that sign, whsec_ or whsk_ and base64, one a line; each of them signs. It is read again when it changes."`
	Authorization string `yaml:"authorization_file" file:"true" doc:"File with the value of the header Authorization, for example Bearer TOKEN. It is read again when it changes. Without it there is no such header."`
	AllowHTTP     bool   `yaml:"allow_http" default:"false" doc:"Also take an http:// URL: then everybody on the way can read the messages."`
}

// With implements [kind.Settings].
func (c Config) With(common kind.Common) kind.Settings {
	c.TLS, c.PublishTimeout = common.TLS, common.PublishTimeout
	return c
}

// Check implements [kind.Settings].
func (c Config) Check(problems kind.Problems) {
	if n := len(c.Endpoints); n > endpointsMost {
		problems.Add("endpoints", "%d endpoints, allowed are %d", n, endpointsMost)
	}
	if len(c.Endpoints) == 0 && !problems.Has("endpoints") {
		problems.Add("endpoints", "at least one is needed")
	}
	if c.Requests < 0 || c.Requests > requestsMost {
		problems.Add("requests", "%d, allowed are 1 to %d", c.Requests, requestsMost)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Endpoints)) {
		if key := "endpoints." + name + ".url"; !problems.Has(key) {
			if what := c.Endpoints[name].wrong(); what != "" {
				problems.Add(key, "%s", what)
			}
		}
	}
}

// wrong says what is wrong with the URL; "" if nothing is.
func (e Endpoint) wrong() string {
	u, err := url.Parse(e.URL)
	switch {
	case err != nil:
		return "is no valid URL"
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Sprintf("has the scheme %q, allowed is https", u.Scheme)
	case u.Scheme == "http" && !e.AllowHTTP:
		return "has the scheme http, whose messages everybody on the way can read: give https, or allow_http: true"
	case u.Hostname() == "" || u.Opaque != "":
		return "has no host"
	case u.Port() != "" && (!kind.IsPort(u.Port()) || u.Port() == "0"):
		return fmt.Sprintf("has the port %q, allowed are 1 to 65535", u.Port())
	case u.User != nil:
		return "holds a login, give it in authorization_file"
	case u.Fragment != "":
		return "has a fragment, which no server gets"
	default:
		return ""
	}
}

// verify is the error of what no configuration has checked.
func (c Config) verify() error {
	if err := kind.Verify(message.Webhook, c, kind.Common{TLS: c.TLS, PublishTimeout: c.PublishTimeout}); err != nil {
		return err
	}
	if _, err := c.files().Config(); err != nil {
		return fmt.Errorf("webhook sink: tls: %w", err)
	}
	return nil
}

// Open implements [kind.Settings].
func (c Config) Open(logger *slog.Logger) (sinks.Sink, error) { return New(c, logger) }

// Grants implements [kind.Settings]: what a firewall must let through, and who must know the secrets.
func (c Config) Grants(kind.Use) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Endpoints)) {
		u, err := url.Parse(c.Endpoints[name].URL)
		if err != nil {
			continue
		}
		lines = append(lines, fmt.Sprintf("# endpoint %s: let the bridge reach %s, and have it verify with the secrets of %s", name, overhttp.Address(u), c.Endpoints[name].Secrets))
	}
	return lines
}

func (c Config) timeout() time.Duration { return cmp.Or(c.PublishTimeout, DefaultPublishTimeout) }

func (c Config) requests() int { return cmp.Or(c.Requests, requestsDefault) }

func (c Config) files() tlsclient.Files {
	if c.TLS == nil {
		return tlsclient.Files{}
	}
	return *c.TLS
}
