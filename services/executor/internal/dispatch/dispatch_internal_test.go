package dispatch

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// starter is a client whose database does not answer at first.
type starter struct {
	errs    []error
	starts  atomic.Int64
	stopped chan struct{}
}

func (s *starter) Start(ctx context.Context) error {
	if n := int(s.starts.Add(1)); n <= len(s.errs) {
		return s.errs[n-1]
	}
	context.AfterFunc(ctx, func() { close(s.stopped) })
	return nil
}

func (s *starter) Stopped() <-chan struct{} { return s.stopped }

func TestStart(t *testing.T) {
	t.Parallel()
	t.Run("Run/BeginsOnceTheDatabaseAnswers", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &starter{errs: []error{io.ErrUnexpectedEOF, errors.New("connection refused")}, stopped: make(chan struct{})}
			d := &Dispatcher{c: c, over: &atomic.Bool{}, log: slog.New(slog.DiscardHandler)}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- d.Run(ctx) }()
			time.Sleep(10 * startAgain) //nolint:forbidigo // the time of the bubble
			require.EqualValues(t, 3, c.starts.Load())
			cancel()
			require.NoError(t, <-done)
		})
	})
	t.Run("Run/EndsWithAFaultOfOurs", func(t *testing.T) {
		t.Parallel()
		d := &Dispatcher{c: &starter{errs: []error{errors.New("no workers")}}, over: &atomic.Bool{}, log: slog.New(slog.DiscardHandler)}
		require.ErrorContains(t, d.Run(t.Context()), "no workers")
	})
}

func TestLog(t *testing.T) {
	t.Parallel()
	lines := func(over bool) string {
		var b strings.Builder
		stop := &atomic.Bool{}
		stop.Store(over)
		log := slog.New(quiet{slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelInfo}), stop}).With("service", "executor")
		log.Error("jobcompleter.BatchCompleter: Completer error (will retry after sleep)", "err", "disk full")
		log.Error("jobcompleter.BatchCompleter: Too many errors; giving up")
		return b.String()
	}
	t.Run("Fault/IsToldWithItsErrorAlone", func(t *testing.T) {
		t.Parallel()
		got := lines(false)
		require.Contains(t, got, "disk full")
		require.NotContains(t, got, "giving up")
	})
	t.Run("Stop/IsQuiet", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, lines(true))
	})
}
