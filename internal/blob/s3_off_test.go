//go:build nos3

package blob_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/blob"
	"github.com/epigraph-run/epigraph/internal/errs"
)

func TestAmazonWithoutItsClient(t *testing.T) {
	t.Parallel()
	_, err := blob.Open(t.Context(), "s3://bucket?region=here")
	require.Equal(t, blob.ReasonURLInvalid, errs.ReasonOf(err))
	require.Contains(t, errs.From(err).HintText(), "-tags nos3")
}
