package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// NoteBlobs implements journal.Blobs. Blobs are noted in the order of their hashes, so that two transactions
// do not wait for each other in a circle.
func (s *Store) NoteBlobs(ctx context.Context, namespace string, refs []journal.BlobRef) ([]journal.BlobState, error) {
	query := `INSERT INTO blobs AS b (namespace, hash, size, touch_time) VALUES ($1, $2, $3, ` + s.d.Now() + `)
		ON CONFLICT (namespace, hash) DO UPDATE
		SET touch_time = CASE WHEN ` + s.d.Unset(`b.doom_time`) + ` THEN excluded.touch_time ELSE b.touch_time END
		RETURNING ` + s.d.Set(`doom_time`) + `, EXISTS (SELECT 1 FROM blob_refs r WHERE r.namespace = $1 AND r.hash = $2)`
	out := make([]journal.BlobState, len(refs))
	order := make([]int, len(refs))
	for i := range refs {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(refs[a].Hash[:], refs[b].Hash[:]) })
	stmts := make([]dbkit.Stmt, len(refs))
	for at, i := range order {
		stmts[at] = dbkit.Stmt{
			Query: query, Args: []any{namespace, refs[i].Hash[:], refs[i].Size},
			Rows: func(rows dbkit.Rows) error {
				var doomed, referred bool
				err := dbkit.FirstRow(rows, nil).Scan(&doomed, &referred)
				switch {
				case doomed:
					out[i] = journal.BlobDoomed
				case referred:
					out[i] = journal.BlobKept
				default:
					out[i] = journal.BlobNew
				}
				return err
			},
		}
	}
	return out, s.db.Engine.Batch(ctx, stmts...)
}

// OrphanBlobs implements journal.Blobs.
func (s *Store) OrphanBlobs(ctx context.Context, grace, again time.Duration, limit int) (names []journal.BlobName, err error) {
	const unreferred = `NOT EXISTS (SELECT 1 FROM blob_refs r WHERE r.namespace = b.namespace AND r.hash = b.hash)`
	now, undoomed := s.d.Now(), s.d.Unset(`b.doom_time`)
	err = s.db.Engine.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		names = nil
		if _, err := tx.Exec(ctx, s.d.DeleteSome(`blob_refs`, `run_id, hash`, `
			SELECT o.run_id, o.hash FROM blob_refs o JOIN blobs b ON b.namespace = o.namespace AND b.hash = o.hash
			WHERE o.snapshot AND b.touch_time <= `+now+` - `+s.d.Span(`$1`)+` AND NOT EXISTS (SELECT 1 FROM snapshots n
				WHERE n.run_id = o.run_id AND `+s.d.Position(`o.hash`, `substr(n.data, 1, 64)`)+` > 0) LIMIT $2`)+` AND snapshot`, grace, limit); err != nil {
			return err
		}
		// A commit that refers to a blob holds its row, so the blob is left for another time. The blobs
		// that are locked here are looked at again, by statements that see what was committed until then.
		rows, err := tx.Query(ctx, `SELECT b.namespace, b.hash FROM blobs b
			WHERE (`+undoomed+` AND b.touch_time <= `+now+` - `+s.d.Span(`$1`)+`
				OR `+s.d.Set(`b.doom_time`)+` AND b.doom_time <= `+now+` - `+s.d.Span(`$2`)+`) AND `+unreferred+`
			ORDER BY b.touch_time LIMIT $3`+s.d.LockedFree(), grace, again, limit)
		found, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (n journal.BlobName, err error) {
			var hash []byte
			err = rows.Scan(&n.Namespace, &hash)
			copy(n.Hash[:], hash)
			return n, err
		})
		if err != nil {
			return err
		}
		stmts := make([]dbkit.Stmt, len(found))
		for i, n := range found {
			stmts[i] = dbkit.Stmt{
				Query: `UPDATE blobs AS b SET doom_time = ` + now + ` WHERE b.namespace = $1 AND b.hash = $2 AND ` + unreferred,
				Args:  []any{n.Namespace, n.Hash[:]},
				Done: func(doomed int64) error {
					if doomed > 0 {
						names = append(names, n)
					}
					return nil
				},
			}
		}
		return tx.Batch(ctx, stmts...)
	})
	return names, err
}

// ForgetBlobs implements journal.Blobs.
func (s *Store) ForgetBlobs(ctx context.Context, names []journal.BlobName) error {
	names = slices.SortedFunc(slices.Values(names), func(a, b journal.BlobName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), bytes.Compare(a.Hash[:], b.Hash[:]))
	})
	stmts := make([]dbkit.Stmt, len(names))
	for i, n := range names {
		stmts[i] = dbkit.Stmt{
			Query: `DELETE FROM blobs WHERE namespace = $1 AND hash = $2 AND ` + s.d.Set(`doom_time`),
			Args:  []any{n.Namespace, n.Hash[:]},
		}
	}
	return s.db.Engine.Batch(ctx, stmts...)
}
