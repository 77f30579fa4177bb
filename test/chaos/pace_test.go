package chaos_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/epigraph-run/epigraph/internal/sleep"

	"github.com/stretchr/testify/require"
)

// TestVerdict checks the bounds of tenant B on runs with known times: a suite that stands still must not
// pass.
func TestVerdict(t *testing.T) {
	t.Parallel()
	const long = 10 * time.Minute
	strict := bounds{request: soakRequest, p99: soakP99, most: soakMax}
	quick := 20 * time.Millisecond
	// stands stands still between two times.
	stands := func(from, to time.Duration) func(context.Context) error {
		begin := time.Now()
		return func(ctx context.Context) error {
			now := time.Since(begin)
			if now >= from && now < to {
				sleep.For(ctx, to-now)
			}
			sleep.For(ctx, quick)
			return ctx.Err()
		}
	}
	for name, c := range map[string]struct {
		run  func() func(context.Context) error
		want string // empty if all is well
	}{
		"Quick":                  {func() func(context.Context) error { return stands(0, 0) }, ""},
		"ShortStandstill":        {func() func(context.Context) error { return stands(time.Minute, time.Minute+time.Second) }, ""},
		"LongStandstill":         {func() func(context.Context) error { return stands(2*time.Minute, 2*time.Minute+6*time.Second) }, "the longest took"},
		"StandstillToTheEnd":     {func() func(context.Context) error { return stands(2*time.Minute, time.Hour) }, "1200 runs of 6000 that were due have ended"},
		"StandstillBeforeTheEnd": {func() func(context.Context) error { return stands(long-10*time.Second, time.Hour) }, "the longest took 10s"},
		"ManyStandstills": {func() func(context.Context) error {
			begin := time.Now()
			return func(ctx context.Context) error { // two seconds of each minute
				if now := time.Since(begin) % time.Minute; now < 2*time.Second {
					sleep.For(ctx, 2*time.Second-now)
				}
				sleep.For(ctx, quick)
				return ctx.Err()
			}
		}, "p99 is"},
		"SlowRequests": {func() func(context.Context) error {
			return func(ctx context.Context) error { sleep.For(ctx, 300*time.Millisecond); return ctx.Err() }
		}, "p99 of the requests is 300ms"},
		"SlowRuns": {func() func(context.Context) error {
			return func(ctx context.Context) error { sleep.For(ctx, 600*time.Millisecond); return ctx.Err() }
		}, "p99 is 600ms"},
		"Faults": {func() func(context.Context) error {
			return func(context.Context) error { return errors.New("refused") }
		}, `6000 runs failed: ["refused"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var runs []sample
				samples := make(chan sample)
				run := c.run()
				go func() {
					paced(long, func(ctx context.Context) (requests, error) {
						begin := time.Now()
						err := run(ctx)
						return requests{longest: time.Since(begin)}, err
					}, func(s sample) { samples <- s })
					close(samples)
				}()
				for s := range samples {
					runs = append(runs, s)
				}
				err := strict.check(runs, long)
				if c.want == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, c.want)
			})
		})
	}
	t.Run("Silent", func(t *testing.T) { // tenant B itself was killed
		t.Parallel()
		require.ErrorContains(t, strict.check([]sample{{Took: quick, Ended: true}}, long), "1 runs of 6000")
		require.Error(t, strict.check(nil, long))
	})
}
