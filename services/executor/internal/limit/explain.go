package limit

import "context"

// Bound is one limit that applies to a call, with its use over all executors.
type Bound struct {
	Limit
	Figure
	// Implied says that nobody set it: it is a concurrency key, which lets one call run at a time.
	Implied bool
}

// Explain returns the limits for calls of an actor with a concurrency key, which may be empty, in the order
// in which they are passed.
func (l *Limiter) Explain(ctx context.Context, namespace, actor, key string) ([]Bound, error) {
	known := l.table.Load()
	var out []Bound
	if key != "" {
		x, ok := known.keys[Key{namespace, key}]
		if !ok {
			x = Limit{Key: ConcurrencyKey(namespace, safe(key)), MaxConcurrent: 1}
		}
		out = append(out, Bound{Limit: x, Implied: !ok})
	}
	if x, ok := known.actors[Key{namespace, actor}]; ok {
		out = append(out, Bound{Limit: x})
	}
	if len(out) == 0 {
		return nil, nil
	}
	keys := make([]Key, len(out))
	for i := range out {
		keys[i] = out[i].Limit.Key
	}
	figures, err := l.store.Figures(ctx, keys)
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i].Figure = figures[i]
	}
	return out, nil
}

// NamespaceFigure is how a namespace stands with what it may have open.
type NamespaceFigure struct {
	Limit
	OpenRuns, PendingRuns int64
}

// ExplainStart explains why runs of a namespace wait as PENDING: false if the number of open runs has no
// bound.
func (l *Limiter) ExplainStart(ctx context.Context, namespace string) (NamespaceFigure, bool, error) {
	x, ok := l.Quota(namespace)
	if !ok || x.MaxOpenRuns == 0 {
		return NamespaceFigure{}, false, nil
	}
	f := NamespaceFigure{Limit: x}
	var err error
	f.OpenRuns, f.PendingRuns, err = l.store.OpenRuns(ctx, namespace, max(x.MaxOpenRuns+1, DefaultMaxPending))
	return f, true, err
}
