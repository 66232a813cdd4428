package service

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// The superuser of the databases, with this password, too.
const databaseUser = "delaybridge"

// PostgresUnsafe is extra configuration for a server that nobody kills: it
// syncs nothing.
const PostgresUnsafe = `
fsync = off
synchronous_commit = off
full_page_writes = off
`

// postgresRunner makes the data folder once, then becomes the server. That
// refuses to start where another process of its user has the id by now that its
// predecessor had, so what a killed one leaves is removed.
const postgresRunner = `
[ -e data/PG_VERSION ] || {
	"$1/initdb" --pgdata=data --username=` + databaseUser + ` --pwfile=password \
		--auth=scram-sha-256 --encoding=UTF8 --locale=C --no-sync && echo 'host all all all scram-sha-256' >>data/pg_hba.conf
} || exit 1
sh ./` + cleanupScript + `
rm -f data/postmaster.pid
exec "$1/postgres" -c config_file="$PWD/postgresql.conf"
`

// postgresCleanup removes the shared memory of a killed server, of which the
// kernel has a few thousand pieces only; the seventh line tells key and id.
const postgresCleanup = `
[ -e data/postmaster.pid ] || exit 0
sed -n 7p data/postmaster.pid | { read -r key id && ipcrm -m "$id"; }
`

// StartPostgres runs one PostgreSQL server with the superuser "delaybridge" and
// the database "postgres"; extraConfig is appended to its postgresql.conf, where
// the last of two equal names wins. What it has committed outlives
// [Server.Kill].
func StartPostgres(ctx context.Context, extraConfig string) (*Server, error) {
	bin, err := postgresFolder()
	if err != nil {
		return nil, err
	}
	s, err := newPostgres(ctx, extraConfig)
	if err != nil {
		return nil, err
	}
	s.argv = []string{"sh", "-c", postgresRunner, "sh", bin}
	return s.start(ctx)
}

// newPostgres prepares all of a PostgreSQL server but its command.
func newPostgres(ctx context.Context, extraConfig string) (*Server, error) {
	s, err := newServer(ctx, "postgres")
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		s.write("password", databaseUser+"\n"),
		s.write("postgresql.conf", s.postgresConfig()+extraConfig+"\n"),
		s.write(cleanupScript, postgresCleanup),
		s.runAs("postgres", "nobody"),
	)
	if err != nil {
		return s.abandon(fmt.Errorf("prepare PostgreSQL: %w", err))
	}
	s.url = "postgres://" + databaseUser + ":" + databaseUser + "@" + s.Addr() + "/postgres?sslmode=disable"
	s.stop = syscall.SIGINT // SIGTERM waits until the clients have gone
	s.ready = s.postgresReady
	return s, nil
}

// postgresFolder finds initdb and postgres, in PATH or where Debian has a folder
// for each version, outside of it; the newest counts.
func postgresFolder() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("%w: initdb of PostgreSQL", ErrMissing)
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0 is no version
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}

func (s *Server) postgresConfig() string {
	data := filepath.Join(s.dir, "data")
	return `data_directory = '` + data + `'
hba_file = '` + filepath.Join(data, "pg_hba.conf") + `'
ident_file = '` + filepath.Join(data, "pg_ident.conf") + `'
listen_addresses = '` + s.host.IP + `'
port = ` + strconv.Itoa(s.port) + `
unix_socket_directories = ''
max_connections = 300
shared_buffers = 32MB
dynamic_shared_memory_type = mmap
jit = off
`
}

// runAs lets the server run as the first of these users that exists, and gives
// it the scratch folder: PostgreSQL refuses to be root. Other users run it as
// themselves.
func (s *Server) runAs(names ...string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	var (
		found *user.User
		err   error
	)
	for _, name := range names {
		if found, err = user.Lookup(name); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%w: find a user to run as: %w", ErrMissing, err)
	}
	uid, uidErr := strconv.Atoi(found.Uid)
	gid, gidErr := strconv.Atoi(found.Gid)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return fmt.Errorf("read ids of %s: %w", found.Username, err)
	}
	s.user = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return filepath.Walk(s.dir, func(path string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Chown(path, uid, gid))
	})
}

// postgresReady begins a session. The server asks for the password, or it
// refuses this session for a reason of the caller's configuration; while it
// starts it refuses all.
func (s *Server) postgresReady(ctx context.Context, _ int64) error {
	const (
		version  = 3 << 16
		starting = "C57P03\x00" // SQLSTATE cannot_connect_now
	)
	hello := binary.BigEndian.AppendUint32(nil, 0)
	hello = binary.BigEndian.AppendUint32(hello, version)
	hello = append(hello, "user\x00"+databaseUser+"\x00database\x00postgres\x00\x00"...)
	binary.BigEndian.PutUint32(hello, uint32(len(hello)))
	answer, err := converse(ctx, s.Addr(), hello)
	if err == nil && bytes.Contains(answer, []byte(starting)) {
		err = fmt.Errorf("answer %q", answer)
	}
	return err
}
