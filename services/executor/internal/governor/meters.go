package governor

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const scope = "github.com/epigraph-run/epigraph/services/executor/internal/governor"

// kindNames are the words for what an account limits.
var kindNames = [kinds]string{"requests", "tokens", "input_tokens", "output_tokens"}

// stale is how old what was last heard of an account may be to be reported.
const stale = 2 * time.Minute

// Meter reports how accounts stand. Their names come from the configuration, so they are few.
func (g *Governor) Meter(p metric.MeterProvider) error {
	m := p.Meter(scope)
	used, e1 := m.Float64ObservableGauge("epigraph.model_account.used",
		metric.WithDescription("Part of an account's limit that was taken in the last minute at all executors, by limit: requests, tokens, input_tokens, output_tokens."))
	waiting, e2 := m.Int64ObservableGauge("epigraph.model_account.waiting", metric.WithDescription("Calls that wait at this executor for room in an account."))
	speed, e3 := m.Float64ObservableGauge("epigraph.model_account.speed",
		metric.WithDescription("Part of an account's limits that is used: less than 1 after the provider refused calls, 0 while it wants none."))
	for _, err := range []error{e1, e2, e3} {
		if err != nil {
			return fmt.Errorf("make metrics: %w", err)
		}
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		for name, x := range g.accounts {
			account := attribute.String("account", name)
			n := 0
			for _, l := range x.lines {
				n += len(l.waiting)
			}
			o.ObserveInt64(waiting, int64(n), metric.WithAttributes(account))
			age := time.Since(x.seenAt)
			if age > stale {
				continue
			}
			for k, part := range x.seen.Used {
				if x.limits.Per[k] > 0 {
					o.ObserveFloat64(used, part, metric.WithAttributes(account, attribute.String("limit", kindNames[k])))
				}
			}
			now := x.seen.Speed
			if age < x.seen.Paused {
				now = 0
			}
			o.ObserveFloat64(speed, now, metric.WithAttributes(account))
		}
		return nil
	}, used, waiting, speed)
	return err
}
