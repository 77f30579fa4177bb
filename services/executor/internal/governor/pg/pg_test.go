package pg_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor/governortest"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	journalpg "github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
)

var template = pgtest.NewTemplate(func(ctx context.Context, url string) error {
	s, err := journalpg.Open(ctx, url, journalpg.Options{})
	if err != nil {
		return err
	}
	_, err = s.Migrations().Up(ctx)
	return errors.Join(err, s.Close())
})

var driver = governortest.Driver{
	Fresh: func(t testing.TB) string { return template.New(t) },
	Open: func(ctx context.Context, place string) (journal.Journal, governor.Store, func() error, error) {
		j, err := journalpg.Open(ctx, place, journalpg.Options{MaxReaders: 2})
		if err != nil {
			return nil, nil, nil, err
		}
		s, err := pg.Open(ctx, place, nil)
		if err != nil {
			return nil, nil, nil, errors.Join(err, j.Close())
		}
		return j, s, s.Close, nil
	},
}

func TestMain(m *testing.M) { testkit.Main(m) }

func TestConformance(t *testing.T) { governortest.Run(t, driver) }

// BenchmarkMinutes loads an account for two minutes after the first one, through three executors' governors.
func BenchmarkMinutes(b *testing.B) {
	for name, limits := range map[string]llm.AccountLimits{
		"Tokens":   {TokensPerMinute: 120_000},
		"Requests": {RequestsPerMinute: 1000},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				m := governortest.Load(b, driver, limits, time.Minute, 2, 1000)
				b.ReportMetric(float64(m.Refused), "refused")
				b.ReportMetric(float64(m.MostRequests), "requests/worst-minute")
				b.ReportMetric(float64(m.MostTokens), "tokens/worst-minute")
				b.ReportMetric(100*max(m.RequestsUsed, m.TokensUsed), "%used")
				b.ReportMetric(float64(m.QuietWaitMean.Milliseconds()), "ms/quiet-wait")
				b.ReportMetric(float64(m.QuietWaitMax.Milliseconds()), "ms/longest-quiet-wait")
			}
		})
	}
}
