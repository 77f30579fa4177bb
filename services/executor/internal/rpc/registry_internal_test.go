package rpc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
)

func TestExplained(t *testing.T) {
	t.Parallel()
	bad := func() *errs.Error { return errs.New(errs.InvalidArgument, "X", "it does not fit") }
	for name, c := range map[string]struct {
		err  *errs.Error
		want string
	}{
		"NamesTheFields":          {bad().Violate("timeout", "X", "too long").Violate("labels", "X", "too many").Hint("mend it"), "it does not fit; timeout: too long; labels: too many; mend it"},
		"NamesInputsAsTheyAre":    {bad().Violate("named.to", "X", "no text").Violate("named", "X", "missing property 'a'"), "it does not fit; to: no text; missing property 'a'"},
		"RepeatsNothing":          {bad().Violate("timeout", "X", "not fit"), "it does not fit"},
		"CountsWhatItLeavesOut":   {bad().Violate("a", "X", "1").Violate("b", "X", "2").Violate("c", "X", "3").Violate("d", "X", "4").Violate("e", "X", "5").Violate("f", "X", "6"), "it does not fit; a: 1; b: 2; c: 3; d: 4; e: 5; and 1 more"},
		"OfAnErrorWithoutDetails": {bad(), "it does not fit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, explained(c.err))
		})
	}
}
