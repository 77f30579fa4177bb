package fail_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/fail"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestFail(t *testing.T) {
	t.Parallel()
	t.Run("Error/IsPermanentUnlessSaid", func(t *testing.T) {
		t.Parallel()
		e := actortest.Fails(t, fail.Spec(), `{}`)
		require.Equal(t, workgraph.Permanent, e.Type)
		require.Equal(t, "DRILL", e.Reason)
	})
	t.Run("Error/AsAsked", func(t *testing.T) {
		t.Parallel()
		e := actortest.Fails(t, fail.Spec(), `{"type": "RETRYABLE", "reason": "R", "message": "m"}`)
		require.Equal(t, &workgraph.Error{Type: workgraph.Retryable, Reason: "R", Message: "m"}, e)
	})
	t.Run("Error/OnlyAtFirst", func(t *testing.T) {
		t.Parallel()
		require.NotNil(t, actortest.Fails(t, fail.Spec(), `{"attempts": 2}`, func(s *workgraph.Start) { s.Attempt = 2 }))
		require.Equal(t, "7", actortest.Value(t, fail.Spec(), `{"attempts": 2, "value": 7}`, func(s *workgraph.Start) { s.Attempt = 3 }))
	})
	t.Run("Panic", func(t *testing.T) {
		t.Parallel()
		require.Panics(t, func() { _, _ = actortest.Call(t, fail.Spec(), `{"mode": "panic"}`) })
	})
	t.Run("Hang/UntilCanceled", func(t *testing.T) {
		t.Parallel()
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		_, err := fail.Spec().Actor.Call(ctx, workgraph.NewCall(workgraph.Start{Named: map[string]json.RawMessage{"mode": json.RawMessage(`"hang"`)}}, workgraph.CallOptions{}))
		require.ErrorIs(t, err, cause)
	})
	t.Run("Refuse/UnknownWords", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "ARGUMENTS_INVALID", actortest.Fails(t, fail.Spec(), `{"mode": "explode"}`).Reason)
		require.Equal(t, "ARGUMENTS_INVALID", actortest.Fails(t, fail.Spec(), `{"type": "WORSE"}`).Reason)
	})
}
