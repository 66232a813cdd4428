package webhook

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

var _ sinks.Checker = (*Sink)(nil)

// Check implements [sinks.Checker]. It connects to each endpoint, and sends no request: what
// a path, a signature or a login is worth only a message can tell.
func (s *Sink) Check(ctx context.Context, plan sinks.Plan) (findings []check.Finding) {
	ctx, end, err := s.calls.Begin(ctx)
	if err != nil {
		return []check.Finding{{Level: check.Error, Code: "sink_unreachable", What: err.Error()}}
	}
	defer end()
	var (
		mu       sync.Mutex
		checking sync.WaitGroup
	)
	for _, e := range s.endpoints {
		checking.Go(func() {
			found := e.check(ctx)
			mu.Lock()
			defer mu.Unlock()
			findings = append(findings, found...)
		})
	}
	checking.Wait()
	slices.SortStableFunc(findings, func(a, b check.Finding) int { return strings.Compare(a.Subject, b.Subject) })
	for _, topic := range plan.Topics {
		if s.endpoints[topic] == nil {
			findings = append(findings, check.Finding{
				Level: check.Error, Code: "webhook_endpoint", Subject: "topic " + topic,
				What:   errNoEndpoint.Error(),
				Why:    "its messages wait, and after park_patience they go to the dead letters",
				Remedy: "sinks.*.endpoints." + topic + ": {url: …, secrets: …}, or correct the producer's topic",
			})
		}
	}
	return findings
}

// check looks at one endpoint.
func (e *endpoint) check(ctx context.Context) (findings []check.Finding) {
	subject := "endpoint " + e.name
	if e.url.Scheme == "http" {
		findings = append(findings, check.Finding{
			Level: check.Warning, Code: "webhook_plain", Subject: subject,
			What:   "its URL is http://",
			Why:    "everybody on the way can read its messages, and the header Authorization",
			Remedy: "give an https:// URL, and take allow_http away",
		})
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	err := e.ping(ctx)
	if err == nil {
		return findings
	}
	f := check.Finding{
		Level: check.Error, Code: "webhook_unreachable", Subject: subject, What: err.Error(),
		Why:    "its messages wait until it takes connections",
		Remedy: "correct sinks.*.endpoints." + e.name + ".url, or start the server; a firewall must let the bridge through",
	}
	if why(err) == sinks.ReasonAuth {
		f.Code, f.Remedy = "webhook_tls", "correct sinks.*.tls"
	}
	return append(findings, f)
}
