package trial

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/faultproxy"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// reverter undoes commits: PostgreSQL's by promoting a standby, MariaDB's by a
// copy of its files.
type reverter struct {
	// link is the address that everybody has, whoever serves it; standby is nil for
	// MariaDB.
	link    *faultproxy.Proxy
	standby *service.PostgresStandby
}

func (d *Database) prepareRevert(ctx context.Context) error {
	d.reverter = &reverter{}
	if d.Kind != "postgres" {
		return nil
	}
	var err error
	if d.reverter.link, err = faultproxy.New(ctx, d.Server.Addr()); err != nil {
		return err
	}
	d.dsn = strings.ReplaceAll(d.dsn, d.Server.Addr(), d.reverter.link.Addr())
	d.reverter.standby, err = service.StartPostgresStandby(ctx, d.Server, "")
	return err
}

// Revert makes the database lose its commits from now on for that long: a standby
// without them takes its place and everybody is led to it, or the server comes
// back with its earlier files. It needs [Options.Reverts].
func (d *Database) Revert(ctx context.Context, lost time.Duration) error {
	switch {
	case d.reverter == nil:
		return errors.New("the database was not made to be reverted")
	case d.reverter.standby != nil:
		return d.failOver(ctx, lost)
	}
	if err := d.Server.Snapshot(ctx); err != nil {
		return err
	}
	if err := errors.Join(Sleep(ctx, lost), d.Server.Kill(), d.Server.Restore()); err != nil {
		return err
	}
	return d.Server.Start(context.WithoutCancel(ctx))
}

func (d *Database) failOver(ctx context.Context, lost time.Duration) error {
	r, old := d.reverter, d.Server
	if err := r.standby.Detach(ctx); err != nil {
		return err
	}
	if err := errors.Join(Sleep(ctx, lost), old.Kill()); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if err := r.standby.Promote(ctx); err != nil {
		return err
	}
	r.link.Forward(r.standby.Addr())
	r.link.Cut()
	d.Server, r.standby = r.standby.Server, nil
	old.Close()
	var err error
	if r.standby, err = service.StartPostgresStandby(ctx, d.Server, ""); err != nil {
		return fmt.Errorf("start the next standby: %w", err)
	}
	return nil
}

func (r *reverter) close() {
	if r.link != nil {
		r.link.Close()
	}
	if r.standby != nil {
		r.standby.Close()
	}
}
