//go:build !gcs

package blob_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/blob"
	"github.com/epigraph-run/epigraph/internal/errs"
)

func TestGoogleWithoutItsClient(t *testing.T) {
	t.Parallel()
	_, err := blob.Open(t.Context(), "gs://bucket")
	require.Equal(t, blob.ReasonURLInvalid, errs.ReasonOf(err))
	require.Contains(t, errs.From(err).HintText(), "s3://bucket?endpoint=https://storage.googleapis.com")
	require.Contains(t, errs.From(err).HintText(), "-tags gcs")
}
