package limit_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
)

// Every method is called with an ended context, while the turn of its namespace is taken, on a store that
// answers nothing. Methods that wait for a turn return an error, and the others get through.
func TestFairMethods(t *testing.T) {
	t.Parallel()
	turns := dbkit.NewTurns(1)
	ended, end := context.WithCancelCause(t.Context())
	reason := errors.New("ended before its turn")
	end(reason)
	var waiting []string
	require.NoError(t, turns.Do(t.Context(), "", func(context.Context) error {
		all := reflect.TypeFor[limit.Store]()
		for i := range all.NumMethod() {
			if name := all.Method(i).Name; testkit.Returns(limit.Fair(nil, turns), name, reason, ended, make([]limit.Key, 1)) {
				waiting = append(waiting, name)
			}
		}
		return nil
	}))
	require.ElementsMatch(t, []string{"Update", "Delete", "List", "Figures", "OpenRuns"}, waiting)
}
