package limit

import (
	"context"
	"fmt"
	"maps"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const scope = "github.com/epigraph-run/epigraph/services/executor/internal/limit"

// Meter reports the passes of limits, and the work that waits for executors. waiting is the number of calls
// that wait in this one for a place. Work that waits in the database is divided evenly among the executors,
// so that the sum over all of them is the whole.
func (l *Limiter) Meter(p metric.MeterProvider, waiting func() int) error {
	m := p.Meter(scope)
	grants, err := m.Int64ObservableCounter("epigraph.limit.grants", metric.WithDescription("Calls and starts that limits let through, by kind: key, limit, rate, quota."))
	if err != nil {
		return fmt.Errorf("make metrics: %w", err)
	}
	depth, err := m.Float64ObservableGauge("epigraph.executor.queue.depth",
		metric.WithDescription("Work that waits for an executor: attempts here, and this executor's share of the jobs that are due. For scaling by it."))
	if err != nil {
		return fmt.Errorf("make metrics: %w", err)
	}
	_, err = m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		l.mu.Lock()
		counts := maps.Clone(l.grants)
		l.mu.Unlock()
		for kind, n := range counts {
			o.ObserveInt64(grants, n, metric.WithAttributes(attribute.String("kind", string(kind))))
		}
		if jobs, executors, err := l.store.Backlog(ctx); err == nil {
			o.ObserveFloat64(depth, float64(waiting())+float64(jobs)/float64(max(executors, 1)))
		}
		return nil
	}, grants, depth)
	return err
}
