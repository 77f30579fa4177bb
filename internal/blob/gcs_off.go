//go:build !gcs

package blob

import (
	"context"
	"net/url"

	"gocloud.dev/blob"
)

// google refuses: Google's own client has 20 MB. Its storage speaks the protocol of S3, too.
func google(_ context.Context, u *url.URL) (*blob.Bucket, error) {
	return nil, leftOut(u, "s3://"+u.Host+"?endpoint=https://storage.googleapis.com&region=auto with an HMAC key of Google's in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a binary built with -tags gcs")
}
