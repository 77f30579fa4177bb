package price

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
)

// crowded is a price book that refuses one namespace because it asks too often.
type crowded struct{}

func (crowded) Prices(_ context.Context, namespace string, entries []outbox.Entry) ([]*int64, error) {
	if namespace == "greedy" {
		return nil, errs.New(errs.ResourceExhausted, "TOO_MANY_CALLS", "there are too many calls of the namespace")
	}
	return make([]*int64, len(entries)), nil
}

// A namespace that the price book refuses stops no other from asking.
func TestBreakerOfANamespace(t *testing.T) {
	t.Parallel()
	e := New(crowded{}, slog.New(slog.DiscardHandler))
	entries := []outbox.Entry{{RunID: "run_1"}}
	for range 3 {
		_, err := e.Ask(t.Context(), "greedy", entries)
		require.Error(t, err)
		_, err = e.Ask(t.Context(), "acme", entries)
		require.NoError(t, err)
	}
	_, err := e.Ask(t.Context(), "greedy", entries)
	require.ErrorIs(t, err, errPricesAway, "it is not asked for again at once")
}
