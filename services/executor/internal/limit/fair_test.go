package limit_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
)

// Every method is called with a context that has ended, while the turn of its namespace is taken, of a store
// that answers nothing: what waits for a turn says so, and the rest gets through.
func TestFairMethods(t *testing.T) {
	t.Parallel()
	turns := dbkit.NewTurns(1)
	ended, end := context.WithCancelCause(t.Context())
	reason := errors.New("ended before its turn")
	end(reason)
	var waiting []string
	require.NoError(t, turns.Do(t.Context(), "", func(context.Context) error {
		f := reflect.ValueOf(limit.Fair(nil, turns))
		all := reflect.TypeFor[limit.Store]()
		for i := range all.NumMethod() {
			m := f.MethodByName(all.Method(i).Name)
			var args []reflect.Value
			for k := range m.Type().NumIn() {
				if in := m.Type().In(k); in == reflect.TypeFor[context.Context]() {
					args = append(args, reflect.ValueOf(ended))
				} else if in == reflect.TypeFor[[]limit.Key]() {
					args = append(args, reflect.ValueOf(make([]limit.Key, 1)))
				} else {
					args = append(args, reflect.Zero(in))
				}
			}
			func() {
				defer func() { _ = recover() }() // there is no store behind
				out := m.Call(args)
				if err, _ := out[len(out)-1].Interface().(error); errors.Is(err, reason) {
					waiting = append(waiting, all.Method(i).Name)
				}
			}()
		}
		return nil
	}))
	require.ElementsMatch(t, []string{"Put", "Delete", "List", "Figures", "OpenRuns"}, waiting)
}
