package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// Source is where a database is and how to get in. Its files are read at each connect,
// so that a rotated password or certificate counts from the next one on.
type Source struct {
	DSN secret.Secret
	// TLS, if not nil, demands TLS and replaces the DSN's setting.
	TLS *tlsclient.Files
	// Connector, if not nil, makes the connections in the place of a driver, and the DSN is
	// not read: for a database that is simulated.
	Connector driver.Connector
}

// Plain is the source of a DSN that never changes.
func Plain(dsn string) Source { return Source{DSN: secret.Value(dsn)} }

// Postgres is [Postgres] with the DSN and the certificates as they are now.
func (s Source) Postgres() (*pgx.ConnConfig, error) {
	dsn, err := s.DSN.Reveal()
	if err != nil {
		return nil, err
	}
	config, err := Postgres(dsn)
	if err != nil || s.TLS == nil {
		return config, err
	}
	hosts := []string{config.Host}
	for _, fallback := range config.Fallbacks {
		hosts = append(hosts, fallback.Host)
	}
	for i, host := range hosts {
		secured, err := s.TLS.Config()
		if err != nil {
			return nil, err
		}
		if secured.ServerName == "" {
			secured.ServerName = host
		}
		if i == 0 {
			config.TLSConfig = secured
		} else {
			config.Fallbacks[i-1].TLSConfig = secured
		}
	}
	return config, nil
}

// MySQL is [MySQL] with the DSN and the certificates as they are now.
func (s Source) MySQL() (*mysql.Config, error) {
	dsn, err := s.DSN.Reveal()
	if err != nil {
		return nil, err
	}
	config, err := MySQL(dsn)
	if err != nil || s.TLS == nil {
		return config, err
	}
	config.TLS, err = s.TLS.Config() // The driver gives it the host's name.
	config.AllowFallbackToPlaintext = false
	return config, err
}

// Open returns a pool of connections, which it does not yet make, with the sessions
// as the server has them. The error is that of [Check].
func (s Source) Open(dialect schema.Dialect) (*sql.DB, error) {
	if dialect == schema.MySQL {
		return s.Pool(func() (driver.Connector, error) {
			config, err := s.MySQL()
			if err != nil {
				return nil, err
			}
			made, err := mysql.NewConnector(config)
			if err != nil {
				return nil, errMySQL
			}
			return made, nil
		})
	}
	return s.Pool(func() (driver.Connector, error) {
		config, err := s.Postgres()
		if err != nil {
			return nil, err
		}
		return stdlib.GetConnector(*config), nil
	})
}

// Pool returns a pool that asks prepare, at each connect, how to connect. It asks once
// at the start, too, and returns the error of that.
func (s Source) Pool(prepare func() (driver.Connector, error)) (*sql.DB, error) {
	if s.Connector != nil {
		return sql.OpenDB(s.Connector), nil
	}
	first, err := prepare()
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(&connector{source: s, prepare: prepare, driver: first.Driver()}), nil
}

// Explain says what to do where the server and we do not trust each other.
func (s Source) Explain(err error) error {
	if s.TLS == nil {
		return tlsclient.Files{}.Explain(err)
	}
	return s.TLS.Explain(err)
}

// connector makes each connection from what the source says then.
type connector struct {
	source  Source
	prepare func() (driver.Connector, error)
	driver  driver.Driver
}

// Connect implements [driver.Connector].
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	now, err := c.prepare()
	if err != nil {
		return nil, err
	}
	conn, err := now.Connect(ctx)
	if err != nil {
		return nil, c.source.Explain(err)
	}
	return conn, nil
}

// Driver implements [driver.Connector].
func (c *connector) Driver() driver.Driver { return c.driver }
