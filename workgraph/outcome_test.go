package workgraph

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	plain, cut := errors.New("connection refused"), Errorf(Unknown, ReasonTimeout, "no end within 1s")
	for name, c := range map[string]struct {
		err    error
		effect Effect
		cut    *Error
		want   *Error
	}{
		"Untyped/MayBeTriedAgain":               {plain, Idempotent, nil, Errorf(Retryable, ReasonActorError, "connection refused")},
		"Untyped/IsUnknownOfAnUnsafeCall":       {plain, Unsafe, nil, Errorf(Unknown, ReasonActorError, "connection refused")},
		"Untyped/CutShortIsTheCutsError":        {plain, Pure, cut, cut},
		"Typed/Stands":                          {Errorf(Permanent, "NO_SUCH_CITY", "no"), Unsafe, nil, Errorf(Permanent, "NO_SUCH_CITY", "no")},
		"Typed/WrappedStands":                   {fmt.Errorf("call: %w", Errorf(Permanent, "NO_SUCH_CITY", "no")), Pure, nil, Errorf(Permanent, "NO_SUCH_CITY", "no")},
		"Typed/OwnReasonStandsBesideACut":       {Errorf(NotPerformed, "REFUSED", "no"), Unsafe, cut, Errorf(NotPerformed, "REFUSED", "no")},
		"Typed/WithoutReasonGetsThatOfTheCut":   {&Error{Type: NotPerformed}, Unsafe, cut, Errorf(NotPerformed, ReasonTimeout, "no end within 1s")},
		"Typed/WithoutTypeGetsThatOfTheEffect":  {&Error{Reason: "BROKEN"}, Unsafe, nil, &Error{Type: Unknown, Reason: "BROKEN"}},
		"Typed/NilPointerIsAnErrorWithoutAType": {(*Error)(nil), Pure, cut, cut},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, Classify(c.err, c.effect, c.cut))
		})
	}
	t.Run("Typed/IsCopied", func(t *testing.T) {
		t.Parallel()
		shared := &Error{Type: Retryable}
		Classify(shared, Pure, cut)
		require.Equal(t, &Error{Type: Retryable}, shared)
	})
}
