package stack

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/services/registry"
)

// MigrateDir is Migrate for the data directory of development mode, which no other process may use meanwhile.
func MigrateDir(ctx context.Context, dir string, cfg Config, out io.Writer) (err error) {
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	cfg.InDir(dir)
	return Migrate(ctx, cfg, out)
}

// Migrate migrates the schemas of the services that have stores, or of the named ones, and writes one line
// for each to out. A current schema stays as it is.
func Migrate(ctx context.Context, cfg Config, out io.Writer, services ...string) error {
	if len(services) == 0 {
		services = []string{Registry, Executor}
	}
	// All are checked before any is changed.
	if err := cfg.ValidateFor(services...); err != nil {
		return err
	}
	for _, s := range services {
		var from, to int64
		var err error
		var where string
		switch s {
		case Registry:
			where = cfg.Registry.Store
			from, to, err = registry.Migrate(ctx, cfg.Registry)
		case Executor:
			where = cfg.Executor.Store
			from, to, err = executor.Migrate(ctx, cfg.Executor)
		default:
			if _, err := fmt.Fprintf(out, "%-9s has no store\n", s); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("migrate %s: %w", s, err)
		}
		what := fmt.Sprintf("version %d, nothing to do", to)
		if from != to {
			what = fmt.Sprintf("version %d -> %d", from, to)
		}
		if _, err := fmt.Fprintf(out, "%-9s %s: %s\n", s, where, what); err != nil {
			return err
		}
	}
	return nil
}
