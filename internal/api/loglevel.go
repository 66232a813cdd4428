package api

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// longestLevel limits how long a temporary level may last.
const longestLevel = 7 * 24 * time.Hour

// Level is the lowest level that the process logs.
type Level interface {
	// Get returns the level in force, the configured one, and when that applies again.
	Get() (current, configured slog.Level, until time.Time)
	// Set changes it for the time last; 0 means until the process ends.
	Set(level slog.Level, last time.Duration)
}

// levels has the calls about what this instance logs.
type levels struct{ *core }

func (l *levels) register() {
	register(l.core, operation{
		id: "logLevel", method: http.MethodGet, path: "/log-level", roles: viewers,
		summary: "Tell what this instance logs",
	}, l.get)
	register(l.core, operation{
		id: "setLogLevel", method: http.MethodPut, path: "/log-level", roles: operators,
		summary: "Change what this instance logs, for a time or until it ends",
	}, l.set)
}

// LogLevel is what an instance logs.
type LogLevel struct {
	Instance   string `json:"instance" doc:"The bridge that was called; the level is that of this bridge alone."`
	Level      string `json:"level" enum:"debug,info,warn,error" doc:"The lowest level that is logged."`
	Configured string `json:"configured" enum:"debug,info,warn,error"`
	Until      string `json:"until,omitempty" format:"date-time" doc:"When the configured level applies again, if it does."`
}

type levelOutput struct{ Body LogLevel }

func (l *levels) get(context.Context, *struct{}) (*levelOutput, error) {
	current, configured, until := l.config.Level.Get()
	return &levelOutput{LogLevel{
		Instance: l.config.Instance, Level: strings.ToLower(current.String()), Configured: strings.ToLower(configured.String()),
		Until: operate.Stamp(until),
	}}, nil
}

type levelInput struct {
	Body struct {
		Level string `json:"level" enum:"debug,info,warn,error"`
		For   string `json:"for,omitempty" doc:"How long, such as 10m; after that the configured level applies again. Without it, until the process ends." example:"10m"`
	}
}

func (l *levels) set(ctx context.Context, in *levelInput) (*levelOutput, error) {
	if caller := callOf(ctx); caller.IsLimited() {
		return nil, forbidden(caller.Name + " may use certain queues or topics only, and this is about all of them")
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(in.Body.Level)); err != nil {
		return nil, invalid("level", "level must be debug, info, warn or error")
	}
	var last time.Duration
	if in.Body.For != "" {
		var err error
		if last, err = config.ParseDuration(in.Body.For); err != nil {
			return nil, invalid("for", "for "+err.Error())
		}
		if last <= 0 || last > longestLevel {
			return nil, invalid("for", "for must be more than 0, and 7d at the most")
		}
	}
	l.config.Level.Set(level, last)
	made := inspect.Change{Action: "log-level", What: strings.TrimSpace(in.Body.Level + " " + in.Body.For)}
	var writing sync.WaitGroup // A Redis that is away delays the answer once, not for each queue.
	for queue := range maps.Keys(queuesOf(ctx)) {
		writing.Go(func() { l.audited(ctx, queue, made, nil) })
	}
	writing.Wait()
	return l.get(ctx, nil)
}
