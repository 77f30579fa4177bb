package executor

import (
	"context"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
	limitpg "github.com/epigraph-run/epigraph/services/executor/internal/limit/pg"
	limitsqlite "github.com/epigraph-run/epigraph/services/executor/internal/limit/sqlite"
)

// openLimits opens the limits that are kept beside j.
func openLimits(ctx context.Context, cfg Config, j journal.Journal, tel *obs.Telemetry) (limit.Store, error) {
	if s, ok := j.(*sqlite.Store); ok {
		return limitsqlite.New(s.DB()), nil
	}
	s, err := limitpg.Open(ctx, cfg.PostgresURL.Reveal(), tel.TracerProvider)
	if err != nil {
		return nil, fmt.Errorf("open limits of executor: %w", err)
	}
	return s, nil
}
