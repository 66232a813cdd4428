package testenv

import (
	"testing"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// PostgresStandby is a private PostgreSQL server that follows another. The test's
// end kills it. Its methods report failures with t.Error.
type PostgresStandby struct {
	*Server

	standby *service.PostgresStandby
}

// StartPostgresStandby starts a standby of a server that [StartPostgres] started,
// and returns when it follows.
func StartPostgresStandby(t testing.TB, primary *Server, extraConfig string) *PostgresStandby {
	t.Helper()
	standby, err := service.StartPostgresStandby(t.Context(), primary.server, extraConfig)
	if err != nil {
		missing(t, err)
	}
	return &PostgresStandby{private(t, standby.Server, nil), standby}
}

// Detach has the standby miss what the primary confirms from now on.
func (s *PostgresStandby) Detach() {
	s.t.Helper()
	check(s.t, s.standby.Detach(s.t.Context()))
}

// Promote makes it a primary that takes writes; the one before must be down.
func (s *PostgresStandby) Promote() {
	s.t.Helper()
	check(s.t, s.standby.Promote(s.t.Context()))
}
