package executor

import (
	"context"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
	limitpg "github.com/epigraph-run/epigraph/services/executor/internal/limit/pg"
	limitsqlite "github.com/epigraph-run/epigraph/services/executor/internal/limit/sqlite"
)

// openLimits opens the limits that are kept beside j. Where they share its connections they have its turns.
func openLimits(ctx context.Context, cfg Config, j journal.Journal, turns *dbkit.Turns, tel *obs.Telemetry) (limit.Store, error) {
	if s, ok := j.(*sqlite.Store); ok {
		return limit.Fair(limitsqlite.New(s), turns), nil
	}
	s, err := limitpg.Open(ctx, cfg.PostgresURL.Reveal(), tel.TracerProvider)
	if err != nil {
		return nil, fmt.Errorf("open limits of executor: %w", err)
	}
	return limit.Fair(s, dbkit.NewTurns(limitpg.Conns)), nil
}
