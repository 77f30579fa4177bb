package errs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
)

func TestClip(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abc", errs.Clip("abc", 3))
	require.Equal(t, "ab…", errs.Clip("abc", 2))
	require.Equal(t, "a…", errs.Clip("aüb", 2), "no half characters: databases refuse them")
	require.Empty(t, errs.Clip("", 0))
}
