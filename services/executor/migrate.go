package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
)

// migrated is a journal whose schema can be asked about.
type migrated interface {
	journal.Journal
	Migrations() *dbkit.Migrations
}

// Migrate brings the schema that cfg names up to date and returns its version before and after.
func Migrate(ctx context.Context, cfg Config) (from, to int64, err error) {
	if err := cfg.Validate(); err != nil {
		return 0, 0, errs.New(errs.InvalidArgument, "EXECUTOR_CONFIG_INVALID", "executor: %v", err)
	}
	var s migrated
	if cfg.Store == "postgres" {
		s, err = pg.Open(ctx, cfg.PostgresURL.Reveal(), pg.Options{})
	} else {
		s, err = sqlite.Open(ctx, cfg.SQLitePath, sqlite.Options{})
	}
	if err != nil {
		return 0, 0, fmt.Errorf("open journal of executor: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	m := s.Migrations()
	if from, _, err = m.Version(ctx); err != nil {
		return 0, 0, err
	}
	if _, err = m.Up(ctx); err != nil {
		return from, from, err
	}
	to, _, err = m.Version(ctx)
	return from, to, err
}

// Ready returns nil while runs are taken and the journal can be reached and has all that this binary needs. A schema that a
// later release has migrated is fine: what it adds leaves the release before it working.
func (s *Service) Ready(ctx context.Context) error {
	// First the database: without it no runs are owned either, and that would say less.
	if m, ok := s.journal.(migrated); ok {
		if err := m.Migrations().Check(ctx); err != nil && errs.ReasonOf(err) != dbkit.ReasonSchemaNew {
			return err
		}
	}
	if s.engine.Owner().IsZero() {
		return errs.New(errs.Unavailable, errs.ReasonNotReady, "the executor owns no runs yet")
	}
	return nil
}
