package table

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, fit := range map[string]bool{
		"8.0.13": true, "8.0.12": false, "8.4.3": true, "9.1.0-commercial": true, "5.7.44-log": false, "8.0.36-28.1": true,
		"10.6.0-MariaDB": true, "10.5.29-MariaDB": false, "5.5.5-10.11.6-MariaDB-1": true, "11.4.2-MariaDB-log": true, "x": false,
	} {
		err := mysqlDialect.checkVersion(version)
		require.Equal(t, fit, err == nil, version)
		require.Equal(t, !fit, IsUnfit(err), version)
	}
	for version, fit := range map[string]bool{"120000": true, "150013": true, "110022": false, "x": false} {
		require.Equal(t, fit, postgres.checkVersion(version) == nil, version)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]Config{
		"dialect":  {Dialect: "oracle"},
		"table":    {Dialect: schema.Postgres, Table: "a b"},
		"postgres": {Dialect: schema.Postgres, Source: sqldb.Plain("postgres://me:hidden@host:port/db")},
		"mysql":    {Dialect: schema.MySQL, Source: sqldb.Plain("me:hidden@what")},
	} {
		_, err := Open(config)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "hidden", name)
	}
}
