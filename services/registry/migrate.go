package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/obs"
)

// Migrate migrates the schema of cfg and returns its version before and after.
func Migrate(ctx context.Context, cfg Config) (from, to int64, err error) {
	if err := cfg.Validate(); err != nil {
		return 0, 0, fmt.Errorf("registry: %w", err)
	}
	st, migrate, err := open(ctx, cfg, Deps{Telemetry: obs.Noop()}, nil)
	if err != nil {
		return 0, 0, fmt.Errorf("open store of registry: %w", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	v, ok := st.(interface {
		Version(context.Context) (have, want int64, err error)
	})
	if !ok {
		return 0, 0, fmt.Errorf("store %T has no schema version", st)
	}
	if from, _, err = v.Version(ctx); err != nil {
		return 0, 0, err
	}
	if _, err = migrate(ctx); err != nil {
		return from, from, err
	}
	to, _, err = v.Version(ctx)
	return from, to, err
}

// Ready returns nil while the store can be reached and its schema has everything that this binary needs. The
// schema of a later release is fine: its additions keep the release before it working.
func (s *Service) Ready(ctx context.Context) error {
	if err := s.store.Ready(ctx); err != nil && errs.ReasonOf(err) != dbkit.ReasonSchemaNew {
		return err
	}
	return nil
}
