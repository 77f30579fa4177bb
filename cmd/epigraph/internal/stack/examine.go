package stack

import (
	"context"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/doctor"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/services/registry"
)

// Examine looks for harm in the stores of these services; of all that have one if none is named.
func Examine(ctx context.Context, cfg Config, o doctor.Options, services ...string) ([]doctor.Report, error) {
	if len(services) == 0 {
		services = []string{Registry, Executor}
	}
	var out []doctor.Report
	for _, s := range services {
		var r doctor.Report
		var err error
		switch s {
		case Registry:
			r, err = registry.Examine(ctx, cfg.Registry, o)
		case Executor:
			r, err = executor.Examine(ctx, cfg.Executor, o)
		default:
			return out, unknownService(s)
		}
		if err != nil {
			return out, fmt.Errorf("examine %s: %w", s, err)
		}
		out = append(out, r)
	}
	return out, nil
}
