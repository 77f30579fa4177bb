package errs_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
)

func TestError(t *testing.T) {
	t.Parallel()
	base := errs.New(errs.NotFound, "PLAN_NOT_FOUND", "plan %q not found", "p1")

	t.Run("New/FormatsMessage", func(t *testing.T) {
		require.Equal(t, `plan "p1" not found`, base.Message)
	})
	t.Run("Kind/FoundThroughWrapping", func(t *testing.T) {
		err := fmt.Errorf("load plan: %w", base)
		require.True(t, errs.Is(err, errs.NotFound))
		require.False(t, errs.Is(err, errs.Internal))
		require.Equal(t, "PLAN_NOT_FOUND", errs.ReasonOf(err))
		require.Same(t, base, errs.From(err))
	})
	t.Run("Kind/ForeignErrorIsInternalAndMasked", func(t *testing.T) {
		require.True(t, errs.Is(io.EOF, errs.Internal))
		require.Equal(t, errs.ReasonInternal, errs.ReasonOf(io.EOF))
		e := errs.From(io.EOF)
		require.Equal(t, "internal error", e.Message)
		require.ErrorIs(t, e, io.EOF)
	})
	t.Run("Kind/NilIsNoError", func(t *testing.T) {
		require.False(t, errs.Is(nil, errs.Internal))
		require.Empty(t, errs.ReasonOf(nil))
		require.Nil(t, errs.From(nil))
	})
	t.Run("Builders/CopyInsteadOfChanging", func(t *testing.T) {
		e := base.Hint("list plans first").Set("plan", "p1").Violate("name", "UNKNOWN", "no such plan").With(io.EOF)
		require.Nil(t, base.Meta)
		require.Empty(t, base.Violations)
		require.NoError(t, base.Err)
		require.Equal(t, "list plans first", e.HintText())
		require.Equal(t, "p1", e.Meta["plan"])
		require.Equal(t, []errs.Violation{{Field: "name", Reason: "UNKNOWN", Message: "no such plan"}}, e.Violations)
		require.ErrorIs(t, e, io.EOF)
		require.Equal(t, `plan "p1" not found: name: no such plan: EOF`, e.Error())
	})
	t.Run("Kind/EveryKindHasAName", func(t *testing.T) {
		for k := errs.Internal; k <= errs.Canceled; k++ {
			require.NotContains(t, k.String(), "kind(")
		}
		require.Equal(t, "kind(200)", errs.Kind(200).String())
	})
}
