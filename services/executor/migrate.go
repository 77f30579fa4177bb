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

// migrated is a journal with a schema version.
type migrated interface {
	journal.Journal
	Migrations() *dbkit.Migrations
}

// Migrate migrates the schema of cfg and returns its version before and after.
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

// Ready returns nil while runs are taken, the journal can be reached and its schema has everything that this
// binary needs. The schema of a later release is fine: its additions keep the release before it working.
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
