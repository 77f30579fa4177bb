package sqlstore

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
)

// setVector sets the vector of an entry of this transaction; nil removes the one that it has.
func (t tx) setVector(ctx context.Context, namespace, id, place string, v *memory.Embedding) error {
	if _, err := t.Exec(ctx, `DELETE FROM memory_vectors WHERE namespace = $1 AND memory_id = $2`, namespace, id); err != nil {
		return err
	}
	model := ""
	if v != nil {
		model = v.Model
		if _, err := t.Exec(ctx, `INSERT INTO memory_vectors (namespace, memory_id, place, model, vector) VALUES ($1, $2, $3, $4, $5)`,
			namespace, id, place, v.Model, v.Bytes()); err != nil {
			return err
		}
	}
	_, err := t.Exec(ctx, `UPDATE memories SET embedded = $3 WHERE namespace = $1 AND id = $2 AND embedded <> $3`, namespace, id, model)
	return err
}

// EmbedMemory implements store.Tx.
func (t tx) EmbedMemory(ctx context.Context, namespace, id string, revision int64, v *memory.Embedding) (bool, error) {
	places, err := collect(ctx, t, func(row dbkit.Scanner) (place string, err error) {
		err = row.Scan(&place)
		return place, err
	}, `SELECT place FROM memories WHERE namespace = $1 AND id = $2 AND revision = $3`+t.d.Locked(), namespace, id, revision)
	if err != nil || len(places) == 0 {
		return false, err
	}
	return true, t.setVector(ctx, namespace, id, places[0], v)
}

// SimilarMemories implements store.Reader. It reads every vector of the scopes, and keeps none but the best:
// a scope has a bound, and an exact answer needs no index that must be tuned.
func (t tx) SimilarMemories(ctx context.Context, q memory.Query, now time.Time) ([]memory.Hit, error) {
	places := make([]string, len(q.Scopes))
	for i, s := range q.Scopes {
		places[i] = s.Place()
	}
	w := where{args: []any{q.Namespace, q.Vector.Model, places}}
	w.parts = []string{`v.namespace = $1`, `v.model = $2`, t.d.In(`v.place`, `$3`), t.alive(w.arg(now))}
	w.add("t.confidence >= %s", int64(math.Ceil(q.MinConfidence*1000)))
	if len(q.Kinds) > 0 {
		w.parts = append(w.parts, t.d.In("t.kind", w.arg(states(q.Kinds))))
	}
	if len(q.AnyTag) > 0 {
		w.parts = append(w.parts, t.d.Overlap("t.tags", w.arg(q.AnyTag)))
	}
	var best memory.Similar
	rows, err := t.Query(ctx, `SELECT t.id, t.confidence, t.update_time, v.vector FROM memory_vectors v JOIN memories t ON t.namespace = v.namespace AND t.id = v.memory_id WHERE `+
		strings.Join(w.parts, " AND "), w.args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var h memory.Hit
		var thousandths int64
		var vector []byte
		if err := rows.Scan(&h.Entry.ID, &thousandths, dbkit.At(&h.Entry.UpdateTime), &vector); err != nil {
			return nil, err
		}
		h.Entry.Confidence = float64(thousandths) / 1000
		if near, same := q.Vector.Similarity(vector); same {
			h.Similarity = near
			best.Add(h)
		}
	}
	return best.Best(), rows.Close()
}

// LeaseUnembedded implements store.Store.
func (s *Store) LeaseUnembedded(ctx context.Context, model string, limit int, hold time.Duration) (out []memory.Entry, err error) {
	err = s.db.Pool.Update(ctx, func(ctx context.Context, q dbkit.Querier) error {
		out = nil
		// Two ranges of the index: models before this one, none among them, and behind it.
		for _, cmp := range []string{"<", ">"} {
			some, err := collect(ctx, tx{q, s.d, nil}, func(row dbkit.Scanner) (e memory.Entry, err error) {
				var value string
				err = row.Scan(&e.Namespace, &e.ID, &e.Key, &e.Text, &value, &e.Tags, &e.Revision)
				e.Value, e.Tags = []byte(value), trim(e.Tags)
				return e, err
			}, `WITH due (n, i) AS MATERIALIZED (SELECT namespace, id FROM memories WHERE embedded `+cmp+` $1 AND embed_after <= `+s.d.Now()+`
					ORDER BY embedded, embed_after LIMIT $2`+s.d.LockedFree()+`)
				UPDATE memories SET embed_after = `+s.d.Now()+` + `+s.d.Span(`$3`)+` FROM due WHERE namespace = due.n AND id = due.i
				RETURNING namespace, id, key, text, value, tags, revision`, model, limit-len(out), hold)
			if err != nil {
				return err
			}
			if out = append(out, some...); len(out) >= limit {
				break
			}
		}
		return nil
	})
	return out, err
}
