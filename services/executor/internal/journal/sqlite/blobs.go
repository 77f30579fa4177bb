package sqlite

import (
	"context"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// blobRefs writes what the values of a unit refer to.
func (t txn) blobRefs(ctx context.Context, u *journal.RunBatch) error {
	for i := range u.Blobs {
		b := &u.Blobs[i]
		if _, err := t.exec(ctx, `INSERT INTO blob_refs (run_id, namespace, hash, snapshot) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			u.RunID, u.Namespace, b.Hash[:], b2i(b.Snapshot)); err != nil {
			return err
		}
	}
	return nil
}
