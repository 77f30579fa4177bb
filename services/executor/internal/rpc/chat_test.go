package rpc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
)

func TestAnswersAny(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		repeatOf string
		approves bool
		want     bool
	}{{"", false, true}, {"tdl_1", false, false}, {"tdl_1", true, true}} {
		d := trigger.Delivery{RepeatOf: c.repeatOf}
		d.Approves = c.approves
		require.Equal(t, c.want, answersAny(&d), "%+v", c)
	}
}
