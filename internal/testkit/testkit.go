// Package testkit owns what tests of every package share: the check for leaked goroutines with the one list
// of known exceptions, a logger that writes to the test, and waiting for a condition. It must not know any
// service, and no production code may import it.
package testkit

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// Main runs the tests of a package and fails them if goroutines are left. Call it from TestMain.
func Main(m *testing.M, more ...goleak.Option) {
	goleak.VerifyTestMain(m, append(Ignore(), more...)...)
}

// Ignore lists goroutines of libraries that outlive what started them by design.
func Ignore() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgxpool.(*Pool).backgroundHealthCheck"),
		goleak.IgnoreAnyFunction("database/sql.(*DB).connectionOpener"),
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"),
	}
}

// Logger returns a logger whose records show with the output of t, Debug included.
func Logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Context returns a context that ends with the test or after d, whichever comes first.
func Context(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits until cond holds and fails the test if it does not within patience. Unlike
// require.Eventually it calls cond on the test's own goroutine, so that cond may fail the test by itself.
func Eventually(t require.TestingT, cond func() bool, patience, pause time.Duration, msgAndArgs ...any) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	for end := time.Now().Add(patience); !cond(); <-time.After(pause) {
		if time.Now().After(end) {
			require.FailNow(t, "the condition does not hold within "+patience.String(), msgAndArgs...)
		}
	}
}
