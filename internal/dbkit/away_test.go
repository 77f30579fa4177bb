package dbkit_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
)

func TestAway(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&pgconn.PgError{Code: "57P01"}, fmt.Errorf("fetch: %w", errors.New("failed to connect to `user=x`: refused")),
		errors.New("FATAL: the database system is starting up (SQLSTATE 57P03)"), errs.New(errs.Unavailable, dbkit.ReasonUnreachable, "away"),
	} {
		require.True(t, dbkit.Away(err), "%v", err)
	}
	for _, err := range []error{nil, &pgconn.PgError{Code: "23505"}, errors.New("a fault of ours"), errs.New(errs.Unavailable, "SERVICE_UNAVAILABLE", "the registry cannot be reached").
		With(errors.New(`rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:7403: connect: connection refused"`))} {
		require.False(t, dbkit.Away(err), "%v", err)
	}
	require.True(t, dbkit.ConnectionLost(fmt.Errorf("begin: %w", pgconn.ErrConnClosed)), "a later statement on a dead connection")
}
