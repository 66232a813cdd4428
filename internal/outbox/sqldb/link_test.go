package sqldb_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/linktest"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database is a server with the user bridge, who needs TLS, a certificate and a
// password. The test itself comes in as its superuser, in the clear.
type database struct {
	*linktest.Link
	dialect schema.Dialect
	server  *testenv.Server
}

func (d *database) run(t *testing.T, dsn string) {
	t.Helper()
	d.Secret = func(password string) string { return fmt.Sprintf(dsn, password) }
	d.Open = func(t *testing.T, login linktest.Login) linktest.Try {
		t.Helper()
		db, err := sqldb.Source{DSN: login.Secret, TLS: login.TLS}.Open(d.dialect)
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxIdleConns(0) // Each try connects.
		return func(ctx context.Context) error {
			var one int
			return db.QueryRowContext(ctx, "SELECT 1").Scan(&one)
		}
	}
	d.Run(t)
	t.Run("without_certificate", func(t *testing.T) { // The superuser needs none.
		source := sqldb.Source{DSN: secret.Value(d.server.URL()), TLS: &tlsclient.Files{CAFile: d.Certs.CAFile}}
		db, err := source.Open(d.dialect)
		require.NoError(t, err)
		defer func() { _ = db.Close() }()
		var name, cipher string
		require.NoError(t, db.QueryRowContext(t.Context(), cipherQuery[d.dialect]).Scan(&name, &cipher))
		require.NotEmpty(t, cipher)
	})
}

// cipherQuery asks a database for the cipher of the connection; without TLS there is none.
var cipherQuery = map[schema.Dialect]string{
	schema.Postgres: "SELECT 'cipher', COALESCE(cipher, '') FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
	schema.MySQL:    "SHOW SESSION STATUS LIKE 'ssl_cipher'",
}

// execute runs statements as the superuser.
func (d *database) execute(t *testing.T, statements ...string) {
	t.Helper()
	db, err := sqldb.Open(d.dialect, d.server.URL())
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	for _, statement := range statements {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}

func TestPostgresLink(t *testing.T) {
	t.Parallel()
	d := &database{Link: &linktest.Link{Certs: testenv.NewCerts(t), Password: "correct-horse"}, dialect: schema.Postgres}
	d.server = testenv.StartPostgres(t, "password_encryption = 'scram-sha-256'") // PostgreSQL 12 has another default
	d.execute(t, "CREATE ROLE bridge LOGIN PASSWORD '"+d.Password+"'")
	// The server must own its files.
	own := func(name, file string) string {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		return d.server.Own(name, content)
	}
	install := func() (ca, certificate, key string) {
		return own("ca.crt", d.Certs.CAFile), own("server.crt", d.Certs.ServerCert), own("server.key", d.Certs.ServerKey)
	}
	ca, certificate, key := install()
	text, err := os.ReadFile(filepath.Join(d.server.Dir(), "postgresql.conf"))
	require.NoError(t, err)
	d.server.Own("postgresql.conf", fmt.Appendf(text, "\nssl = on\nssl_ca_file = '%s'\nssl_cert_file = '%s'\nssl_key_file = '%s'\n", ca, certificate, key))
	d.server.Own("data/pg_hba.conf", []byte(`
host all delaybridge all scram-sha-256
hostssl all bridge all scram-sha-256 clientcert=verify-ca
`))
	restart := func() {
		d.server.Kill()
		install()
		d.server.Start()
	}
	restart()
	d.Restart = func(t *testing.T) {
		t.Helper()
		d.execute(t, "ALTER ROLE bridge PASSWORD '"+d.Password+"'")
		restart()
	}
	d.run(t, "postgres://bridge:%s@"+d.server.Addr()+"/postgres?sslmode=disable")
}

func TestMySQLLink(t *testing.T) {
	t.Parallel()
	d := &database{Link: &linktest.Link{Certs: testenv.NewCerts(t), Password: "correct-horse"}, dialect: schema.MySQL}
	d.server = testenv.StartMariaDB(t, fmt.Sprintf("ssl_ca = %s\nssl_cert = %s\nssl_key = %s", d.Certs.CAFile, d.Certs.ServerCert, d.Certs.ServerKey))
	d.execute(t, "CREATE USER bridge@'%' IDENTIFIED BY '"+d.Password+"' REQUIRE X509", "GRANT ALL ON delaybridge.* TO bridge@'%'")
	d.Restart = func(t *testing.T) {
		t.Helper()
		d.execute(t, "ALTER USER bridge@'%' IDENTIFIED BY '"+d.Password+"' REQUIRE X509")
		d.server.Kill()
		d.server.Start()
	}
	d.run(t, "bridge:%s@tcp("+d.server.Addr()+")/delaybridge")
}

// TestMissingFile: a source whose file is not there is an error at the start, and one at
// each connect later.
func TestMissingFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "dsn")
	source := sqldb.Source{DSN: secret.File(file)}
	_, err := source.Open(schema.Postgres)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(file, []byte("postgres://nobody@127.0.0.1:1/none"), 0o600))
	db, err := source.Open(schema.Postgres)
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	require.NoError(t, os.Remove(file))
	require.ErrorIs(t, db.PingContext(t.Context()), os.ErrNotExist)
}
