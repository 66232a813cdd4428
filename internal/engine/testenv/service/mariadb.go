package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// MariaDBUnsafe is extra configuration for a server that nobody kills: it syncs
// nothing.
const MariaDBUnsafe = `
innodb_flush_log_at_trx_commit = 0
innodb_doublewrite = OFF
loose_sync_frm = OFF
`

// mariaRunner makes the data folder once, then becomes the server. The programs
// must be told that they may be root.
const mariaRunner = `
install=$1 server=$2; shift 2
[ -d data/mysql ] || "$install" --defaults-file="$PWD/my.cnf" --datadir="$PWD/data" "$@" \
	--auth-root-authentication-method=normal --skip-test-db || exit 1
exec "$server" --defaults-file="$PWD/my.cnf" --datadir="$PWD/data" --init-file="$PWD/users.sql" "$@"
`

// mariaUsers runs at each start, before the first client is served: one
// statement a line.
const mariaUsers = `CREATE DATABASE IF NOT EXISTS ` + databaseUser + `;
CREATE USER IF NOT EXISTS ` + databaseUser + `@'%' IDENTIFIED BY '` + databaseUser + `';
GRANT ALL ON *.* TO ` + databaseUser + `@'%' WITH GRANT OPTION;
`

// StartMariaDB runs one MariaDB server with the user and the database
// "delaybridge"; extraConfig is appended to the server's section of its
// configuration, where the last of two equal names wins. What it has committed
// outlives [Server.Kill]. The environment's DELAYBRIDGE_TEST_MYSQL_SERVER may name
// a mysqld to be run instead.
func StartMariaDB(ctx context.Context, extraConfig string) (*Server, error) {
	argv, own, err := mariaRun()
	if err != nil {
		return nil, err
	}
	s, err := newServer(ctx, "mariadb")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.write("my.cnf", s.mariaConfig()+own+extraConfig+"\n"), s.write("users.sql", mariaUsers)); err != nil {
		return s.abandon(fmt.Errorf("write MariaDB configuration: %w", err))
	}
	s.url = databaseUser + ":" + databaseUser + "@tcp(" + s.Addr() + ")/" + databaseUser + "?parseTime=true"
	s.argv = argv
	if os.Geteuid() == 0 {
		s.argv = append(s.argv, "--user=root")
	}
	s.ready = s.mariaReady
	return s.start(ctx)
}

// mariaRun is the command that runs the server, and what only that one's
// configuration needs.
func mariaRun() (argv []string, own string, err error) {
	if argv, err = mysqlRun(); argv != nil || err != nil {
		return argv, mysqlOnly, err
	}
	install, server, err := mariaPrograms()
	return []string{"sh", "-c", mariaRunner, "sh", install, server}, "", err
}

// mariaPrograms looks where Debian has the server, too: it is in no user's PATH.
func mariaPrograms() (install, server string, err error) {
	install, err = exec.LookPath("mariadb-install-db")
	if err != nil {
		return "", "", fmt.Errorf("%w: mariadb-install-db", ErrMissing)
	}
	server, err = exec.LookPath("mariadbd")
	if err != nil {
		server = "/usr/sbin/mariadbd"
		err = exists(server)
	}
	return install, server, err
}

func (s *Server) mariaConfig() string {
	// A path of a socket must be short: this one is in the data folder. A server
	// that starts empties tmpdir of its like, so each has its own.
	return `[mysqld]
tmpdir = ` + s.dir + `
bind_address = ` + s.host.IP + `
port = ` + strconv.Itoa(s.port) + `
socket = mariadb.sock
pid_file = ` + filepath.Join(s.dir, "mariadb.pid") + `
character_set_server = utf8mb4
max_connections = 300
skip_name_resolve = ON
innodb_buffer_pool_size = 32M
innodb_log_file_size = 16M
innodb_use_native_aio = OFF
`
}

// mariaReady waits for the greeting, in which the version of the protocol
// follows four bytes of a header; an error has 255 there.
func (s *Server) mariaReady(ctx context.Context, _ int64) error {
	answer, err := converse(ctx, s.Addr(), nil)
	if err != nil {
		return err
	}
	if len(answer) < 5 || answer[4] != 10 {
		return fmt.Errorf("answer %q", answer)
	}
	return nil
}
