package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"time"

	"github.com/epigraph-run/epigraph/internal/blob"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/offload"
)

// noBlobs is what keeps all values with their rows.
const noBlobs = "off"

// blobGraceMin is far longer than a write can be under way.
const blobGraceMin = 10 * time.Minute

// blobURL is where large values go; empty if nowhere.
func (c Config) blobURL() (string, error) {
	switch {
	case c.Blobs == noBlobs || c.Blobs == "" && c.Store != "sqlite":
		return "", nil
	case c.Blobs != "":
		return c.Blobs, nil
	}
	path, err := filepath.Abs(c.SQLitePath + ".blobs")
	if err != nil {
		return "", fmt.Errorf("find directory of blobs: %w", err)
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String(), nil
}

// validateRetention returns the faults of the settings that bound the size of the journal.
func (c Config) validateRetention() (faults []error) {
	if c.Blobs != "" && c.Blobs != noBlobs {
		if err := blob.Check(c.Blobs); err != nil {
			faults = append(faults, fmt.Errorf("blobs: %w", err))
		}
	}
	if c.BlobOver < conf.Bytes(4<<10) {
		faults = append(faults, fmt.Errorf("blob_over must be at least 4KiB, got %d bytes", int64(c.BlobOver)))
	}
	if c.BlobGrace < blobGraceMin {
		faults = append(faults, fmt.Errorf("blob_grace must be at least %s, got %s", blobGraceMin, c.BlobGrace))
	}
	if c.Compress < 0 {
		faults = append(faults, errors.New("compress must not be negative"))
	}
	if c.Retention != 0 && c.Retention < retentionMin {
		faults = append(faults, fmt.Errorf("retention must be 0, which keeps runs, or at least %s, got %s", retentionMin, c.Retention))
	}
	if c.Archive != "" {
		if err := blob.Check(c.Archive); err != nil {
			faults = append(faults, fmt.Errorf("archive: %w", err))
		}
		if c.Retention == 0 {
			faults = append(faults, errors.New("archive needs a retention: only what is removed is archived"))
		}
	}
	if c.Partition < time.Hour {
		faults = append(faults, fmt.Errorf("partition must be at least an hour, got %s", c.Partition))
	}
	return faults
}

// retentionMin keeps a slip of the pen from emptying a journal.
const retentionMin = time.Minute

// offloading is how the journal's large values are kept.
type offloading struct {
	*offload.Offload
	store *blob.Store
}

// openOffload opens what keeps the large values of j.
func openOffload(ctx context.Context, cfg Config, j journal.Blobs, log *slog.Logger) (s offloading, err error) {
	raw, err := cfg.blobURL()
	if err != nil {
		return s, err
	}
	if raw != "" {
		if s.store, err = blob.Open(ctx, raw); err != nil {
			return s, fmt.Errorf("open blob store of executor: %w", err)
		}
	}
	if s.Offload, err = offload.New(j, offload.Options{Store: s.store, Over: int(cfg.BlobOver), Compress: int(cfg.Compress), Logger: log}); err != nil {
		return s, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close lets go of the blob store.
func (s offloading) Close() error {
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}
