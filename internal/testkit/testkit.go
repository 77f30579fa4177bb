// Package testkit owns what tests of every package share: the check for leaked goroutines with the one list
// of known exceptions, a logger that writes to the test, waiting for a condition, and a free address. It must
// not know any service, and no production code may import it.
package testkit

import (
	"context"
	"log/slog"
	"net"
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

// FreeAddress returns an address of the loopback that was free a moment ago.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// Timeout is how long Eventually waits: far longer than anything takes on a machine that is busy.
const Timeout = time.Minute

// Eventually waits until cond holds, and fails the test if it does not within Patience. Unlike
// require.Eventually it asks cond on the test's own goroutine, so that cond may fail the test by itself. It
// asks again after a millisecond, and after longer and longer pauses, up to 20 milliseconds.
func Eventually(t require.TestingT, cond func() bool, msgAndArgs ...any) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	pause := time.Millisecond
	until(t, Timeout, func() time.Duration {
		now := pause
		pause = min(pause+pause/4, 20*time.Millisecond)
		return now
	}, cond, msgAndArgs...)
}

// Within is Eventually with a timeout and a pause of the caller's, for what takes minutes, for conditions
// that cost much, and for fake time.
func Within(t require.TestingT, timeout, pause time.Duration, cond func() bool, msgAndArgs ...any) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	until(t, timeout, func() time.Duration { return pause }, cond, msgAndArgs...)
}

func until(t require.TestingT, timeout time.Duration, pause func() time.Duration, cond func() bool, msgAndArgs ...any) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	for end := time.Now().Add(timeout); !cond(); <-time.After(pause()) {
		if time.Now().After(end) {
			require.FailNow(t, "the condition does not hold within "+timeout.String(), msgAndArgs...)
		}
	}
}
