package admission_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/errs"
)

func TestControl(t *testing.T) {
	enter := func(t *testing.T, c *admission.Control, namespace string, cost int) func() {
		t.Helper()
		leave, err := c.Enter(t.Context(), namespace, cost)
		require.NoError(t, err)
		return leave
	}
	ended, end := context.WithCancel(context.Background())
	end()
	refused := func(t *testing.T, c *admission.Control, namespace string, cost int) {
		t.Helper()
		_, err := c.Enter(ended, namespace, cost)
		require.Equal(t, admission.ReasonBusy, errs.ReasonOf(err), "got %v", err)
	}
	t.Run("Large/OneAtATime", func(t *testing.T) {
		var c admission.Control
		leave := enter(t, &c, "a", 30_000)
		refused(t, &c, "a", 30_000)
		refused(t, &c, "a", admission.Free+1)
		leave()
		leave() // twice does nothing
		enter(t, &c, "a", 30_000)
		refused(t, &c, "a", 30_000)
	})
	t.Run("Small/PassesBesideIt", func(t *testing.T) {
		var c admission.Control
		enter(t, &c, "a", 30_000)
		enter(t, &c, "a", admission.Free)
	})
	t.Run("Namespaces/DoNotWaitForEachOther", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var c admission.Control
			leave := enter(t, &c, "a", 30_000)
			ctx, cancel := context.WithCancel(t.Context())
			var crowd sync.WaitGroup
			for range admission.Waiting {
				crowd.Go(func() { _, _ = c.Enter(ctx, "a", 30_000) })
			}
			synctest.Wait()
			enter(t, &c, "b", 30_000)()
			_, err := c.Enter(t.Context(), "a", 30_000)
			require.Equal(t, admission.ReasonBusy, errs.ReasonOf(err), "no more of one namespace may wait")
			cancel()
			crowd.Wait()
			leave()
		})
	})
	t.Run("Overall/IsBounded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var c admission.Control
			var leave []func()
			for _, ns := range []string{"a", "b", "c", "d"} {
				leave = append(leave, enter(t, &c, ns, 20_000))
			}
			refused(t, &c, "e", 5_000)
			in := make(chan func(), 2)
			go func() { in <- enter(t, &c, "e", 20_000) }()
			synctest.Wait()
			go func() { in <- enter(t, &c, "f", 3_000) }()
			synctest.Wait()
			require.Empty(t, in, "who waits for room among all is not passed by")
			leave[0]()
			(<-in)()
			(<-in)()
		})
	})
	t.Run("Leave/LetsTheNextIn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var c admission.Control
			leave := enter(t, &c, "a", 30_000)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			go func() {
				time.Sleep(time.Millisecond) //nolint:forbidigo // in a bubble
				leave()
			}()
			next, err := c.Enter(ctx, "a", 30_000)
			require.NoError(t, err)
			next()
		})
	})
}
