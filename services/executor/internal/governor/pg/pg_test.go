package pg_test

import (
	"context"
	"errors"
	"testing"

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
