// Package blob owns the store of large values: immutable objects under a name, in a directory, in memory or
// in a bucket, by URL. It must not know their meaning, their users, or when one is no longer needed.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"
	"gocloud.dev/gcerrors"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Reasons of errors.
const (
	// ReasonMissing is the reason when there is no object of that name.
	ReasonMissing = "BLOB_MISSING"
	// ReasonUnreachable is the reason when the store does not answer, or refuses us.
	ReasonUnreachable = "BLOB_STORE_UNREACHABLE"
	// ReasonURLInvalid is the reason when a URL names no store.
	ReasonURLInvalid = "BLOB_URL_INVALID"
)

// Schemes are those of the URLs that Open takes.
func Schemes() []string { return []string{"file", "s3", "gs", "mem"} }

// Store keeps objects. It is safe for concurrent use.
type Store struct {
	bucket *blob.Bucket
	where  string
}

// Check reports whether Open would take raw, without reaching out.
func Check(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return errs.New(errs.InvalidArgument, ReasonURLInvalid, "the URL of a blob store cannot be read").With(err)
	case !slices.Contains(Schemes(), u.Scheme):
		return errs.New(errs.InvalidArgument, ReasonURLInvalid, "a blob store has no scheme %q", u.Scheme).
			Hint("use file:///dir, s3://bucket?region=…, gs://bucket or mem://")
	case u.Scheme == "file" && (u.Host != "" && u.Host != "." || u.Path == ""):
		return errs.New(errs.InvalidArgument, ReasonURLInvalid, "a blob store in a directory is named by its whole path").Hint("use file:///dir")
	case (u.Scheme == "s3" || u.Scheme == "gs") && u.Host == "":
		return errs.New(errs.InvalidArgument, ReasonURLInvalid, "the URL of a blob store names no bucket").Hint("use " + u.Scheme + "://bucket")
	}
	return nil
}

// Open opens the store at raw: file:///dir (created if missing), mem://, s3://bucket or gs://bucket, each
// with "prefix=" and, for S3, with region, endpoint, s3ForcePathStyle and so on as in gocloud.dev.
// Credentials come from the provider's usual places, never from the URL. Open does not contact a bucket.
// gs://bucket needs a binary that was built with the tag gcs: its client takes 20 MB. With the tag nos3 there
// is no client for s3://bucket either.
func Open(ctx context.Context, raw string) (*Store, error) {
	if err := Check(raw); err != nil {
		return nil, err
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	var b *blob.Bucket
	prefix := u.Query().Get("prefix")
	switch u.Scheme {
	case "file":
		dir := filepath.FromSlash(u.Path)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make directory of blobs: %w", err)
		}
		// The temporary file is beside the final one, so that a crash leaves a whole object or none.
		b, err = fileblob.OpenBucket(dir, &fileblob.Options{NoTempDir: true, Metadata: fileblob.MetadataDontWrite, DirFileMode: 0o700})
	case "mem":
		b = memblob.OpenBucket(nil)
	case "s3":
		b, err = amazon(ctx, u)
	default:
		b, err = google(ctx, u)
	}
	if _, ok := errors.AsType[*errs.Error](err); ok {
		return nil, err
	}
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, ReasonURLInvalid, "the blob store cannot be opened").With(err)
	}
	if prefix != "" {
		b = blob.PrefixedBucket(b, prefix)
	}
	return &Store{bucket: b, where: (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()}, nil
}

// leftOut refuses a store whose client is not in this binary, and says what to use in its place.
func leftOut(u *url.URL, use string) error {
	return errs.New(errs.InvalidArgument, ReasonURLInvalid, "this binary has no client for %s:// stores", u.Scheme).Hint("use " + use)
}

// Where says where the store is, without what its URL says beside.
func (s *Store) Where() string { return s.where }

// Put stores data under name. It replaces an existing object; readers see the old one or the new one, whole.
func (s *Store) Put(ctx context.Context, name string, data []byte) error {
	return s.fault("store", name, s.bucket.WriteAll(ctx, name, data, &blob.WriterOptions{
		ContentType: "application/octet-stream", DisableContentTypeDetection: true, BeforeWrite: private,
	}))
}

// private makes a file readable by its owner alone. Other kinds of stores have no files.
func private(as func(any) bool) error {
	var f *os.File
	if !as(&f) {
		return nil
	}
	return f.Chmod(0o600)
}

// Get reads an object of at most limit bytes, 0 meaning any. ReasonMissing.
func (s *Store) Get(ctx context.Context, name string, limit int64) (_ []byte, err error) {
	r, err := s.bucket.NewReader(ctx, name, nil)
	if err != nil {
		return nil, s.fault("read", name, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if limit > 0 && r.Size() > limit {
		return nil, errs.New(errs.Internal, errs.ReasonInternal, "object %q has %d bytes, more than the %d that it should have", name, r.Size(), limit)
	}
	data := make([]byte, 0, max(r.Size(), 0))
	w := appender{&data}
	if _, err := io.Copy(w, r); err != nil {
		return nil, s.fault("read", name, err)
	}
	return data, nil
}

type appender struct{ to *[]byte }

func (a appender) Write(p []byte) (int, error) { *a.to = append(*a.to, p...); return len(p), nil }

// Holds reports whether there is an object of that name.
func (s *Store) Holds(ctx context.Context, name string) (bool, error) {
	ok, err := s.bucket.Exists(ctx, name)
	return ok, s.fault("look for", name, err)
}

// Remove removes an object; one that is not there is no error.
func (s *Store) Remove(ctx context.Context, name string) error {
	if err := s.fault("remove", name, s.bucket.Delete(ctx, name)); errs.ReasonOf(err) != ReasonMissing {
		return err
	}
	return nil
}

// Names lists up to limit objects whose names begin with prefix.
func (s *Store) Names(ctx context.Context, prefix string, limit int) ([]string, error) {
	it := s.bucket.List(&blob.ListOptions{Prefix: prefix})
	var out []string
	for len(out) < limit {
		o, err := it.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, s.fault("list", prefix, err)
		}
		out = append(out, o.Key)
	}
	return out, nil
}

// Reach reports whether the store answers.
func (s *Store) Reach(ctx context.Context) error {
	ok, err := s.bucket.IsAccessible(ctx)
	if err == nil && !ok {
		err = errors.New("there is no such bucket, or it is not ours to use")
	}
	return s.fault("reach", s.where, err)
}

// Close ends what the store holds open.
func (s *Store) Close() error { return s.bucket.Close() }

func (s *Store) fault(verb, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case gcerrors.Code(err) == gcerrors.NotFound:
		return errs.New(errs.NotFound, ReasonMissing, "there is no object %q in the blob store", name).
			Hint("look whether the store's URL is still the one that was written with, and whether something else removes its objects").With(err)
	}
	return errs.New(errs.Unavailable, ReasonUnreachable, "%s %q: the blob store does not do it", verb, strings.ToValidUTF8(name, "?")).
		Hint("look at the store's URL, its credentials and its network").With(err)
}
