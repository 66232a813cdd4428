package service

import (
	"fmt"
	"os"
	"os/exec"
)

// mysqlProgramEnv names MySQL's mysqld, to be run in MariaDB's place.
const mysqlProgramEnv = "DELAYBRIDGE_TEST_MYSQL_SERVER"

// mysqlRunner makes the data folder once, then becomes the server.
const mysqlRunner = `
server=$1; shift
[ -d data/mysql ] || "$server" --defaults-file="$PWD/my.cnf" --datadir="$PWD/data" --initialize-insecure "$@" || exit 1
exec "$server" --defaults-file="$PWD/my.cnf" --datadir="$PWD/data" --init-file="$PWD/users.sql" "$@"
`

// mysqlOnly are settings that MariaDB does not know: no second protocol with a
// port of its own, and no file for replicas, which MariaDB does not write either.
const mysqlOnly = `mysqlx = OFF
skip_log_bin
`

// mysqlRun is the command that runs MySQL, nil if none is asked for.
func mysqlRun() ([]string, error) {
	name := os.Getenv(mysqlProgramEnv)
	if name == "" {
		return nil, nil
	}
	server, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrMissing, name)
	}
	return []string{"sh", "-c", mysqlRunner, "sh", server}, nil
}
