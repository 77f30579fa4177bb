package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

type blobRow struct {
	u *journal.RunBatch
	*journal.BlobRef
}

func blobTable() table[blobRow] {
	return table[blobRow]{
		col("run_id", "text", func(b blobRow) string { return b.u.RunID }),
		col("namespace", "text", func(b blobRow) string { return b.u.Namespace }),
		col("hash", "bytea", func(b blobRow) []byte { return b.Hash[:] }),
		col("snapshot", "boolean", func(b blobRow) bool { return b.Snapshot }),
	}
}

// blobRefs adds what the values of runs that done wrote refer to.
func (s *statements) blobRefs(b *builder, units []runBatch, done string) {
	var rows []blobRow
	for _, u := range units {
		for i := range u.Blobs {
			rows = append(rows, blobRow{u, &u.Blobs[i]})
		}
	}
	if len(rows) == 0 {
		return
	}
	t := blobTable()
	names := t.names("")
	b.with("br", "INSERT INTO blob_refs ("+names+") SELECT "+names+" FROM "+t.from(b.next(), "b")+only("run_id", done)+" ON CONFLICT DO NOTHING", t.packs(rows)...)
}

// NoteBlobs implements journal.Blobs.
func (s *Store) NoteBlobs(ctx context.Context, namespace string, refs []journal.BlobRef) ([]journal.BlobState, error) {
	out := make([]journal.BlobState, len(refs))
	hashes, sizes := make([][]byte, len(refs)), make([]int64, len(refs))
	at := map[journal.BlobHash]int{}
	for i := range refs {
		hashes[i], sizes[i] = refs[i].Hash[:], refs[i].Size
		at[refs[i].Hash] = i
	}
	// In one order, so that two that note the same do not wait for each other in a circle.
	rows, err := s.hot.Query(ctx, `INSERT INTO blobs AS b (namespace, hash, size)
		SELECT $1, x.hash, max(x.size) FROM unnest($2::bytea[], $3::bigint[]) AS x (hash, size) GROUP BY x.hash ORDER BY x.hash
		ON CONFLICT (namespace, hash) DO UPDATE SET touch_time = CASE WHEN b.doom_time IS NULL THEN now() ELSE b.touch_time END
		RETURNING hash, doom_time IS NOT NULL, EXISTS (SELECT FROM blob_refs r WHERE r.namespace = b.namespace AND r.hash = b.hash)`, namespace, hashes, sizes)
	if err != nil {
		return nil, err
	}
	var hash []byte
	var doomed, referred bool
	states := map[journal.BlobHash]journal.BlobState{}
	_, err = pgx.ForEachRow(rows, []any{&hash, &doomed, &referred}, func() error {
		st := journal.BlobNew
		switch {
		case doomed:
			st = journal.BlobDoomed
		case referred:
			st = journal.BlobKept
		}
		states[journal.BlobHash(hash)] = st
		return nil
	})
	for i := range refs {
		out[i] = states[refs[i].Hash]
	}
	return out, err
}

// OrphanBlobs implements journal.Blobs.
func (s *Store) OrphanBlobs(ctx context.Context, grace, again time.Duration, limit int) (names []journal.BlobName, err error) {
	err = pgx.BeginFunc(ctx, s.hot, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM blob_refs r WHERE r.snapshot AND (r.run_id, r.hash) IN (
			SELECT o.run_id, o.hash FROM blob_refs o JOIN blobs b ON b.namespace = o.namespace AND b.hash = o.hash
			WHERE o.snapshot AND b.touch_time <= now() - $1::interval AND NOT EXISTS (
				SELECT FROM snapshots n WHERE n.run_id = o.run_id AND position(o.hash IN substring(n.data FOR 64)) > 0) LIMIT $2)`,
			interval(grace), limit); err != nil {
			return err
		}
		// A commit that refers to one holds its row: it is looked at another time. What is locked here is looked at again, by a statement that sees
		// what was committed until then.
		rows, err := tx.Query(ctx, `SELECT namespace, hash FROM blobs b WHERE (b.touch_time <= now() - $1::interval AND b.doom_time IS NULL
				OR b.doom_time <= now() - $2::interval)
			AND NOT EXISTS (SELECT FROM blob_refs r WHERE r.namespace = b.namespace AND r.hash = b.hash)
			ORDER BY touch_time LIMIT $3 FOR UPDATE SKIP LOCKED`, interval(grace), interval(again), limit)
		found, err := collect(rows, err, scanBlob)
		if err != nil || len(found) == 0 {
			return err
		}
		ns, hashes := splitBlobs(found)
		rows, err = tx.Query(ctx, `UPDATE blobs b SET doom_time = now() FROM unnest($1::text[], $2::bytea[]) AS x (namespace, hash)
			WHERE b.namespace = x.namespace AND b.hash = x.hash
			AND NOT EXISTS (SELECT FROM blob_refs r WHERE r.namespace = b.namespace AND r.hash = b.hash)
			RETURNING b.namespace, b.hash`, ns, hashes)
		names, err = collect(rows, err, scanBlob)
		return err
	})
	return names, err
}

func scanBlob(row pgx.CollectableRow) (n journal.BlobName, err error) {
	var hash []byte
	err = row.Scan(&n.Namespace, &hash)
	copy(n.Hash[:], hash)
	return n, err
}

func splitBlobs(names []journal.BlobName) (ns []string, hashes [][]byte) {
	for i := range names {
		ns, hashes = append(ns, names[i].Namespace), append(hashes, names[i].Hash[:])
	}
	return ns, hashes
}

// ForgetBlobs implements journal.Blobs.
func (s *Store) ForgetBlobs(ctx context.Context, names []journal.BlobName) error {
	ns, hashes := splitBlobs(names)
	_, err := s.hot.Exec(ctx, `DELETE FROM blobs b USING unnest($1::text[], $2::bytea[]) AS x (namespace, hash)
		WHERE b.namespace = x.namespace AND b.hash = x.hash AND b.doom_time IS NOT NULL`, ns, hashes)
	return err
}
