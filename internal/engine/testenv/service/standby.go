package service

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// postgresCopier copies the primary that listens on the second argument once,
// with all that a standby needs to follow it, and continues like the other servers.
const postgresCopier = `
[ -e data/PG_VERSION ] || PGPASSWORD=` + databaseUser + ` "$1/pg_basebackup" --pgdata=data --host=127.0.0.1 --port="$2" \
	--username=` + databaseUser + ` --write-recovery-conf --checkpoint=fast --no-sync || exit 1
` + postgresRunner

// PostgresStandby follows a PostgreSQL server until it is promoted: it answers
// reads, and has each commit a moment after the primary has confirmed it.
type PostgresStandby struct {
	*Server
}

// StartPostgresStandby copies a server that [StartPostgres] started and follows
// it. The lines of extraConfig are appended as there.
func StartPostgresStandby(ctx context.Context, primary *Server, extraConfig string) (*PostgresStandby, error) {
	bin, err := postgresFolder()
	if err != nil {
		return nil, err
	}
	s, err := newPostgres(ctx, extraConfig)
	if err != nil {
		return nil, err
	}
	s.argv = []string{"sh", "-c", postgresCopier, "sh", bin, fmt.Sprint(primary.port)}
	if s, err = s.start(ctx); err != nil {
		return nil, err
	}
	standby := &PostgresStandby{s}
	if err := standby.await(ctx, "following", "SELECT count(*) = 1 FROM pg_stat_wal_receiver WHERE status = 'streaming'"); err != nil {
		s.Close()
		return nil, err
	}
	return standby, nil
}

// Detach has the standby receive nothing more: what the primary confirms from now
// on is lost when the standby takes its place.
func (s *PostgresStandby) Detach(ctx context.Context) error {
	err := s.execute(ctx, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
	if err != nil {
		return fmt.Errorf("detach %s: %w", s.Addr(), err)
	}
	return s.await(ctx, "the end of the stream", "SELECT count(*) = 0 FROM pg_stat_wal_receiver")
}

// Promote makes the standby a primary, which takes writes when it returns. The
// primary before must be down: nobody else keeps clients from it.
func (s *PostgresStandby) Promote(ctx context.Context) error {
	if err := s.execute(ctx, "SELECT pg_promote()"); err != nil {
		return fmt.Errorf("promote %s: %w", s.Addr(), err)
	}
	return s.await(ctx, "the end of recovery", "SELECT NOT pg_is_in_recovery()")
}

// await waits until the query answers true.
func (s *PostgresStandby) await(ctx context.Context, what, query string) error {
	return await(ctx, what, func(ctx context.Context) error {
		return s.session(ctx, func(ctx context.Context, db *sql.DB) error {
			var is bool
			err := db.QueryRowContext(ctx, query).Scan(&is)
			if err == nil && !is {
				err = errors.New("not yet")
			}
			return err
		})
	})
}

func (s *PostgresStandby) execute(ctx context.Context, statements ...string) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	return s.session(ctx, func(ctx context.Context, db *sql.DB) error {
		for _, statement := range statements {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *PostgresStandby) session(ctx context.Context, do func(context.Context, *sql.DB) error) error {
	db, err := OpenPostgres(s.URL())
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, db), db.Close())
}
