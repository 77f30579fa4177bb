package schedule_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/schedule"
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
		all := reflect.TypeFor[schedule.Store]()
		for i := range all.NumMethod() {
			if name := all.Method(i).Name; testkit.Returns(schedule.Fair(nil, turns), name, reason, ended) {
				waiting = append(waiting, name)
			}
		}
		return nil
	}))
	require.ElementsMatch(t, []string{"Create", "Get", "List", "Change", "Delete"}, waiting)
}
