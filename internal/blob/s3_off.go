//go:build nos3

package blob

import (
	"context"
	"net/url"

	"gocloud.dev/blob"
)

// amazon refuses: the client of S3 has 9 MB.
func amazon(_ context.Context, u *url.URL) (*blob.Bucket, error) {
	return nil, leftOut(u, "file:///dir, or a binary built without -tags nos3")
}
