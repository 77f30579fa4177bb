package idkind_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/idkind"
)

func TestHint(t *testing.T) {
	t.Parallel()
	const list = "ListRuns lists the existing ones"
	for id, want := range map[string]string{
		"ep_1": "ep_1 is the id of an epic: GetEpic finds it", "int_1": "int_1 is the id of an interrupt: GetInterrupt finds it",
		"run_1": list, "nope": list, "": list, "zz_1": list,
	} {
		require.Equal(t, want, idkind.Hint(id, "run", list), id)
	}
}
