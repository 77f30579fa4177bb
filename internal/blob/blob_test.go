package blob_test

import (
	"bytes"
	"io/fs"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/blob"
	"github.com/epigraph-run/epigraph/internal/errs"
)

// stores are the URLs of one empty store of each kind that can be had without an account.
func stores(t *testing.T) map[string]string {
	t.Helper()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("values"))
	server := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	s3 := url.Values{"endpoint": {server.URL}, "region": {"here"}, "s3ForcePathStyle": {"true"}, "prefix": {"epigraph/"}}
	return map[string]string{"File": "file://" + filepath.ToSlash(t.TempDir()) + "/deep/blobs", "Memory": "mem://", "S3": "s3://values?" + s3.Encode()}
}

func TestStore(t *testing.T) {
	for kind, raw := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			s, err := blob.Open(t.Context(), raw)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			ctx := t.Context()
			require.NoError(t, s.Reach(ctx))

			data := bytes.Repeat([]byte("value \x00\xff"), 100_000)
			require.NoError(t, s.Put(ctx, "acme/0a", data))
			require.NoError(t, s.Put(ctx, "acme/0a", data), "again")
			got, err := s.Get(ctx, "acme/0a", int64(len(data)))
			require.NoError(t, err)
			require.Equal(t, data, got)

			_, err = s.Get(ctx, "acme/0a", 10)
			require.ErrorContains(t, err, "more than the 10")
			_, err = s.Get(ctx, "other/0a", 0)
			require.Equal(t, blob.ReasonMissing, errs.ReasonOf(err))

			if u, err := url.Parse(raw); err == nil && u.Scheme == "file" {
				require.NoError(t, filepath.WalkDir(u.Path, func(path string, e fs.DirEntry, err error) error {
					require.NoError(t, err)
					info, err := e.Info()
					require.NoError(t, err)
					require.Zero(t, info.Mode().Perm()&0o077, "%s has mode %v", path, info.Mode())
					return nil
				}))
			}

			names, err := s.Names(ctx, "acme/", 10)
			require.NoError(t, err)
			require.Equal(t, []string{"acme/0a"}, names)
			require.NoError(t, s.Remove(ctx, "acme/0a"))
			require.NoError(t, s.Remove(ctx, "acme/0a"), "again")
			_, err = s.Get(ctx, "acme/0a", 0)
			require.Equal(t, blob.ReasonMissing, errs.ReasonOf(err))
		})
	}
	t.Run("S3/NoSuchBucket", func(t *testing.T) {
		s, err := blob.Open(t.Context(), strings.Replace(stores(t)["S3"], "values", "nothing", 1))
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		require.Equal(t, blob.ReasonUnreachable, errs.ReasonOf(s.Reach(t.Context())))
	})
}

func TestURL(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"", "dir", "ftp://x", "file://", "file://host/dir", "s3://", "gs://", "s3://%zz"} {
		require.Equal(t, blob.ReasonURLInvalid, errs.ReasonOf(blob.Check(raw)), raw)
		_, err := blob.Open(t.Context(), raw)
		require.Equal(t, blob.ReasonURLInvalid, errs.ReasonOf(err), raw)
	}
	for _, raw := range []string{"file:///var/blobs", "mem://", "s3://bucket?region=eu-west-1", "gs://bucket?prefix=a/"} {
		require.NoError(t, blob.Check(raw), raw)
	}
}
