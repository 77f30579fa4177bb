package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
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

// NoteBlobs implements journal.Blobs.
func (s *Store) NoteBlobs(ctx context.Context, namespace string, refs []journal.BlobRef) ([]journal.BlobState, error) {
	out := make([]journal.BlobState, len(refs))
	err := s.update(ctx, func(ctx context.Context, t txn) error {
		for i := range refs {
			var doomed, referred bool
			err := t.row(ctx, `INSERT INTO blobs (namespace, hash, size, touch_time) VALUES (?1, ?2, ?3, `+now+`)
				ON CONFLICT (namespace, hash) DO UPDATE SET touch_time = CASE WHEN doom_time = 0 THEN excluded.touch_time ELSE touch_time END
				RETURNING doom_time > 0, EXISTS (SELECT 1 FROM blob_refs r WHERE r.namespace = ?1 AND r.hash = ?2)`, namespace, refs[i].Hash[:], refs[i].Size).
				Scan(&doomed, &referred)
			if err != nil {
				return err
			}
			switch {
			case doomed:
				out[i] = journal.BlobDoomed
			case referred:
				out[i] = journal.BlobKept
			default:
				out[i] = journal.BlobNew
			}
		}
		return nil
	})
	return out, err
}

// OrphanBlobs implements journal.Blobs.
func (s *Store) OrphanBlobs(ctx context.Context, grace, again time.Duration, limit int) (names []journal.BlobName, err error) {
	err = s.update(ctx, func(ctx context.Context, t txn) error {
		if _, err := t.exec(ctx, `DELETE FROM blob_refs WHERE snapshot = 1 AND (run_id, hash) IN (
			SELECT o.run_id, o.hash FROM blob_refs o JOIN blobs b ON b.namespace = o.namespace AND b.hash = o.hash
			WHERE o.snapshot = 1 AND b.touch_time <= `+now+` - ? AND NOT EXISTS (
				SELECT 1 FROM snapshots n WHERE n.run_id = o.run_id AND instr(substr(n.data, 1, 64), o.hash) > 0) LIMIT ?)`,
			grace.Microseconds(), limit); err != nil {
			return err
		}
		rows, err := t.tx.QueryContext(ctx, `UPDATE blobs SET doom_time = `+now+` WHERE (namespace, hash) IN (
			SELECT b.namespace, b.hash FROM blobs b WHERE (b.touch_time <= `+now+` - ? AND b.doom_time = 0 OR b.doom_time > 0 AND b.doom_time <= `+now+` - ?)
			AND NOT EXISTS (SELECT 1 FROM blob_refs r WHERE r.namespace = b.namespace AND r.hash = b.hash) ORDER BY b.touch_time LIMIT ?)
			RETURNING namespace, hash`, grace.Microseconds(), again.Microseconds(), limit)
		names, err = dbkit.Collect(rows, err, func(rows *sql.Rows) (n journal.BlobName, err error) {
			var hash []byte
			err = rows.Scan(&n.Namespace, &hash)
			copy(n.Hash[:], hash)
			return n, err
		})
		return err
	})
	return names, err
}

// ForgetBlobs implements journal.Blobs.
func (s *Store) ForgetBlobs(ctx context.Context, names []journal.BlobName) error {
	return s.update(ctx, func(ctx context.Context, t txn) error {
		for i := range names {
			if _, err := t.exec(ctx, `DELETE FROM blobs WHERE namespace = ? AND hash = ? AND doom_time > 0`, names[i].Namespace, names[i].Hash[:]); err != nil {
				return err
			}
		}
		return nil
	})
}
