package pg_test

import (
	"context"
	"errors"
	"testing"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	journalpg "github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger/triggertest"
)

var template = pgtest.NewTemplate(func(ctx context.Context, url string) error {
	s, err := journalpg.Open(ctx, url, journalpg.Options{})
	if err != nil {
		return err
	}
	_, err = s.Migrations().Up(ctx)
	return errors.Join(err, s.Close())
})

var driver = triggertest.Driver{
	Fresh: func(t testing.TB) string { return template.New(t) },
	Open: func(ctx context.Context, place string) (trigger.Store, func() error, error) {
		s, err := pg.Open(ctx, place, nil)
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	},
}

func TestMain(m *testing.M) { testkit.Main(m) }

func TestConformance(t *testing.T) { triggertest.Run(t, driver) }
