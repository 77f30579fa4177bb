//go:build !nos3

package blob

import (
	"context"
	"net/url"

	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
)

// amazon opens a bucket of S3 or of what speaks its protocol.
func amazon(ctx context.Context, u *url.URL) (*blob.Bucket, error) {
	q := u.Query()
	q.Del("prefix")
	u.RawQuery = q.Encode()
	return new(s3blob.URLOpener).OpenBucketURL(ctx, u)
}
