package obs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/obs"
)

func TestOutage(t *testing.T) {
	t.Parallel()
	gone := errors.New("connection refused")
	watch := func() (*obs.Outage, *slog.Logger, func() []string) {
		var b bytes.Buffer
		drop := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
		o := obs.NewOutage(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: drop})), "the database",
			func(err error) bool { return strings.Contains(err.Error(), gone.Error()) })
		return o, o.Logger().With("service", "s"), func() []string {
			out := strings.Split(strings.TrimSpace(b.String()), "\n")
			b.Reset()
			return out
		}
	}
	t.Run("Outage/HasABeginningAMiddleAndAnEnd", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o, log, lines := watch()
			for i := range 600 { // two loops, for a minute
				log.Error("journal cannot be written", "err", fmt.Errorf("commit %d: %w", i, gone))
				log.Warn("Elector: cannot elect", slog.String("error", gone.Error()))
				time.Sleep(100 * time.Millisecond) //nolint:forbidigo // inside a bubble
			}
			got := lines()
			require.Len(t, got, 2, "%q", got)
			require.Equal(t, `level=ERROR msg="the database does not answer" err="commit 0: connection refused"`, got[0])
			require.Contains(t, got[1], `level=WARN msg="the database still does not answer"`)
			require.Contains(t, got[1], `for=30s`)
			o.Answered()            // one that was under way
			time.Sleep(time.Second) //nolint:forbidigo // inside a bubble
			o.Answered()
			o.Answered()
			require.Equal(t, []string{`level=INFO msg="the database answers again" after=1m1s lines_left_out=1200`}, lines())
		})
	})
	t.Run("Outage/EndsThoughOthersRunOutOfTime", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o, log, lines := watch()
			log.Error("journal cannot be written", "err", gone)
			for range 4 {
				time.Sleep(500 * time.Millisecond) //nolint:forbidigo // inside a bubble
				log.Warn("a web hook does not answer", "err", context.DeadlineExceeded)
				o.Answered()
			}
			got := lines()
			require.Contains(t, got[1], "answers again")
			require.Contains(t, got[len(got)-1], "a web hook does not answer")
		})
	})
	t.Run("Lines/OfOtherFaultsStay", func(t *testing.T) {
		_, log, lines := watch()
		log.Error("a fault of ours", "err", errors.New("nil pointer"))
		log.Warn("nothing is wrong with an error", "n", 7)
		log.Info("told all the same", "err", gone)
		require.Len(t, lines(), 3)
	})
	t.Run("Lines/OfWhoeverWaitsForItAreLeftOutMeanwhile", func(t *testing.T) {
		_, log, lines := watch()
		late := errors.New("fetch: context deadline exceeded")
		log.Error("too late", "err", late)
		log.Error("away", "err", gone)
		log.Error("too late", "err", late)
		require.Len(t, lines(), 2)
	})
}
