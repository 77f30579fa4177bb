package pg

import (
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
