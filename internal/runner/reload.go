package runner

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// lookAtFiles is how often the queue files are looked at.
const lookAtFiles = 3 * time.Second

// Reloader loads the configuration again on request, and puts it in force if it is valid
// and differs in no key that needs a restart. Otherwise nothing changes. It also looks at the queue
// files every few seconds, and takes what is declared by the API; one that is wrong counts as it was before, whatever the others say.
type Reloader struct {
	config  ReloaderConfig
	inForce *config.Config
	looks   looks
}

// looks are those at the queue files.
type looks struct {
	// seen are the files at the last look, tried those of the last change, whether it was taken or not.
	seen, tried config.Included
}

// note takes the files of a look, and reports whether they have changed. A change counts when it is seen twice, because a file
// that is being written, or replaced, may be valid and lack queues.
func (l *looks) note(inForce *config.Config, files config.Included) (isNews bool) {
	isSettled := files.EqualFiles(l.seen)
	l.seen = files
	switch {
	case inForce.Has(files):
		l.tried = config.Included{}
		return false
	case !isSettled || files.Equal(l.tried):
		return false
	}
	l.tried = files
	return true
}

// take has files count as tried.
func (l *looks) take(files config.Included) { l.tried = files }

// ReloaderConfig says what a [Reloader] changes. All fields are required except Level.
type ReloaderConfig struct {
	Requests <-chan os.Signal
	// Load reads the configuration again that is in force.
	Load func(inForce *config.Config) (*config.Config, error)
	// Declared are the queues that are declared by the API, by name, as JSON; DeclaredChanged receives a value after they have changed.
	Declared        func() map[string]string
	DeclaredChanged <-chan struct{}

	Queues  *Queues
	Level   *telemetry.Level // of the logger, where it can change
	Guard   *access.Guard
	Metrics *telemetry.Metrics
	Logger  *slog.Logger
}

// NewReloader returns a reloader for the configuration in force.
func NewReloader(cfg ReloaderConfig, inForce *config.Config) *Reloader {
	return &Reloader{config: cfg, inForce: inForce}
}

// Run listens and looks until ctx ends. Earlier requests wait in the channel.
func (r *Reloader) Run(ctx context.Context) {
	r.tellFiles(r.inForce)
	looks := time.NewTicker(lookAtFiles)
	defer looks.Stop()
	if len(r.inForce.QueueFiles) == 0 {
		looks.Stop() // A reload may bring the section.
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.config.Requests:
			r.reload() //nolint:contextcheck // What starts outlives the reloader.
			if looks.Stop(); len(r.inForce.QueueFiles) > 0 {
				looks.Reset(lookAtFiles)
			}
		case <-looks.C:
			r.look() //nolint:contextcheck // as above
		case <-r.config.DeclaredChanged:
			r.declare() //nolint:contextcheck // as above
		}
	}
}

// reload loads the configuration and puts it in force.
func (r *Reloader) reload() {
	next, err := r.config.Load(r.inForce)
	var changes config.Changes
	if err == nil {
		changes, err = r.take(next)
	}
	r.tell(changes, err)
}

// look puts the queue files in force if they have changed.
func (r *Reloader) look() {
	if files := r.inForce.Declare(r.config.Declared()); r.looks.note(r.inForce, files) {
		r.tell(r.take(r.inForce.With(files)))
	}
}

// declare puts what is declared by the API in force, unless files are changing: then a look does.
func (r *Reloader) declare() {
	files := r.inForce.Declare(r.config.Declared())
	if !files.EqualFiles(r.inForce.Included()) || r.inForce.Has(files) {
		return
	}
	r.looks.take(files)
	r.tell(r.take(r.inForce.With(files)))
}

// take puts a configuration in force, as a whole or not at all.
func (r *Reloader) take(next *config.Config) (config.Changes, error) {
	changes, err := r.inForce.Changes(next)
	if err != nil {
		return changes, err
	}
	commit, err := r.config.Queues.Prepare(next, changes)
	if err != nil {
		return changes, err
	}
	if err := r.config.Guard.Change(next.Admin.Auth.Settings()); err != nil {
		return changes, err
	}
	commit()
	if r.config.Level != nil && next.Log.Level != r.inForce.Log.Level {
		r.config.Level.Configure(next.Log.Level)
	}
	r.inForce = next
	r.tellFiles(next)
	return changes, nil
}

// tell logs and counts what came of a change.
func (r *Reloader) tell(changes config.Changes, err error) {
	r.config.Metrics.Reloaded(err)
	if err != nil {
		r.config.Logger.Error("configuration not reloaded, the old one stays in force", "event", "reload", "err", err)
		return
	}
	r.config.Logger.Info("configuration reloaded", "event", "reload", "changed", changes.Keys,
		"added", listed(changes.Added), "removed", listed(changes.Removed), "restarted", listed(changes.Restarted))
}

// listed is a list for the log, which is never null.
func listed(names []string) []string { return append([]string{}, names...) }

// tellFiles logs the problems of queue files.
func (r *Reloader) tellFiles(cfg *config.Config) {
	r.config.Metrics.WrongQueueFiles(cfg.WrongFiles())
	for _, p := range cfg.FileErrors() {
		r.config.Logger.Error("queue file is wrong: its queues stay as they were, or are missing since the start",
			"event", "queue_file", "file", p.File, "err", p)
	}
}
