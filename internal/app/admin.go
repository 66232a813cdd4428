package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/admin"
	"github.com/delaybridge/delaybridge/internal/api"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/console"
	"github.com/delaybridge/delaybridge/internal/health"
	"github.com/delaybridge/delaybridge/internal/runner"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// adminModule provides the HTTP listeners, and the API that one of them serves.
var adminModule = fx.Module("admin", fx.Provide(provideAdmin, provideAPI, provideGuard, newStatusPage))

// statusPage is what /readyz tells.
type statusPage struct {
	redis    *health.Redis
	sinks    *health.Sinks
	queues   *runner.Queues
	outboxes *runner.Outboxes
	draining atomic.Bool
}

func newStatusPage(redis *health.Redis, sinks *health.Sinks, queues *runner.Queues, outboxes *runner.Outboxes) *statusPage {
	return &statusPage{redis: redis, sinks: sinks, queues: queues, outboxes: outboxes}
}

// AdminListener makes the daemon serve admin.listen where somebody listens
// already; the daemon closes the listener when it ends.
func AdminListener(bound net.Listener) fx.Option { return fx.Supply(adminListener{bound}) }

type adminListener struct{ net.Listener }

// DevHandler makes admin.listen serve what is below /dev/, too.
func DevHandler(h http.Handler) fx.Option { return fx.Supply(devHandler{h}) }

type devHandler struct{ http.Handler }

type adminParams struct {
	fx.In

	Bound   adminListener `optional:"true"`
	Dev     devHandler    `optional:"true"`
	Config  *config.Config
	Logger  *slog.Logger
	Metrics *telemetry.Metrics
	Page    *statusPage
	API     *api.API
}

func provideAdmin(p adminParams) (*admin.Server, error) {
	cfg, logger, metrics := p.Config, p.Logger, p.Metrics
	metrics.RegisterRedis(func() bool { return p.Page.redis.Check().OK })
	var tls *tls.Config
	if cfg.Admin.TLS != nil {
		var err error
		if tls, err = cfg.Admin.TLS.Config(); err != nil {
			return nil, fmt.Errorf("admin.tls: %w", err)
		}
	}
	return admin.New(admin.Config{
		Listen: cfg.Admin.Listen, Probes: cfg.Admin.Probes, Bound: p.Bound.Listener,
		Live: p.Page.queues.Live, Ready: p.Page.ready, Metrics: metrics.Handler(), API: p.API, Dev: p.Dev.Handler, Profiles: p.API.Profiles(), Console: console.Handler(), TLS: tls, Logger: logger,
	}), nil
}

// start starts the listeners first and stops them last, so that a drain
// can be watched; then come the queues and the outboxes. At a stop, the outboxes
// take nothing more, the queues drain, and the rows are told what was published.
func start(lc fx.Lifecycle, server *admin.Server, metrics *telemetry.Metrics, queues *runner.Queues, outboxes *runner.Outboxes, inlets *runner.Inlets, page *statusPage) {
	var unregister context.CancelFunc
	lc.Append(fx.StartStopHook(func(ctx context.Context) error {
		ctx, unregister = context.WithCancel(context.WithoutCancel(ctx))
		metrics.RegisterStats(ctx, queues)
		return server.Start(ctx)
	}, func(ctx context.Context) error {
		defer unregister()
		return server.Stop(ctx)
	}))
	lc.Append(fx.StopHook(outboxes.Finish))
	lc.Append(fx.StartStopHook(queues.Start, func(ctx context.Context) error {
		page.draining.Store(true)
		return queues.Stop(ctx)
	}))
	lc.Append(fx.StartStopHook(outboxes.Start, outboxes.Halt))
	lc.Append(fx.StartStopHook(inlets.Start, inlets.Stop))
}

// ready is false until Redis has answered once, after ten seconds without it,
// and while draining. A sink or a database that is down is told, and a Redis that
// does not confirm, but they do not make us unready: an unready bridge could not be asked why.
func (s *statusPage) ready() admin.Readiness {
	redis := s.redis.Check()
	checks := slices.Concat([]admin.Check{redis}, s.sinks.Checks(), s.queues.Checks(), s.outboxes.Checks())
	ready := redis.OK
	if s.draining.Load() {
		ready = false
		checks = append(checks, admin.Check{Name: "bridge", Detail: "draining"})
	}
	return admin.Readiness{Ready: ready, Checks: checks}
}
