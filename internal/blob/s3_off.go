//go:build nos3

package blob

import (
	"context"
	"net/url"

	"gocloud.dev/blob"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// amazon refuses: the client of S3, of 9 MB, is not in this binary.
func amazon(context.Context, *url.URL) (*blob.Bucket, error) {
	return nil, errs.New(errs.InvalidArgument, ReasonURLInvalid, "this binary has no client for s3:// stores").
		Hint("use file:///dir, or a binary built without -tags nos3")
}
