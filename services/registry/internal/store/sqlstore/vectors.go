package sqlstore

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
)

// setVector sets the vector of an entry of this transaction; nil removes the one that it has. One that
// is the own of a client is not replaced by that of another model.
func (t tx) setVector(ctx context.Context, namespace, id, place string, v *memory.Embedding, own bool) error {
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
	var kept int64
	if own {
		kept = 1
	}
	_, err := t.Exec(ctx, `UPDATE memories SET embedded = $3, own_vector = $4, embed_attempts = 0, embed_fault = ''
		WHERE namespace = $1 AND id = $2 AND (embedded <> $3 OR own_vector <> $4 OR embed_fault <> '')`, namespace, id, model, kept)
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
	return true, t.setVector(ctx, namespace, id, places[0], v, false)
}

// RefuseVector implements store.Tx.
func (t tx) RefuseVector(ctx context.Context, namespace, id string, revision int64, f memory.Fault) (bool, error) {
	before, err := collect(ctx, t, func(row dbkit.Scanner) (refused int64, err error) {
		err = row.Scan(&refused)
		return refused, err
	}, `SELECT embed_attempts FROM memories WHERE namespace = $1 AND id = $2 AND revision = $3`+t.d.Locked(), namespace, id, revision)
	if err != nil || len(before) == 0 {
		return false, err
	}
	refused := max(before[0], 0) + 1 // another model was given up before this one
	pause, again := memory.EmbedRetry(int(refused))
	if again {
		_, err = t.Exec(ctx, `UPDATE memories SET embed_attempts = $3, embed_fault = $4, embed_after = `+t.d.Now()+` + `+t.d.Span(`$5`)+`
			WHERE namespace = $1 AND id = $2`, namespace, id, refused, f.Message, pause)
		return true, err
	}
	if _, err := t.Exec(ctx, `DELETE FROM memory_vectors WHERE namespace = $1 AND memory_id = $2`, namespace, id); err != nil {
		return true, err
	}
	_, err = t.Exec(ctx, `UPDATE memories SET embedded = $3, embed_attempts = -1, embed_fault = $4 WHERE namespace = $1 AND id = $2`, namespace, id, f.Model, f.Message)
	return true, err
}

// SimilarMemories implements store.Reader. It reads every vector of the scopes, one at a time, and
// keeps none but the best: a scope has a bound, and an exact answer needs no index that must be tuned.
// What is more than a search reads is counted, and not read.
func (t tx) SimilarMemories(ctx context.Context, q memory.Query, now time.Time) (out memory.Found, err error) {
	places := make([]string, len(q.Scopes))
	for i, s := range q.Scopes {
		places[i] = s.Place()
	}
	w := where{args: []any{q.Namespace, q.Vector.Model, places}}
	w.parts = []string{`v.namespace = $1`, `v.model = $2`, t.d.In(`v.place`, `$3`)}
	there, err := t.count(ctx, `SELECT 1 FROM memory_vectors v WHERE `+strings.Join(w.parts, " AND "), w.args...)
	if err != nil {
		return out, err
	}
	w.add("length(v.vector) = %s", q.Vector.Size())
	w.parts = append(w.parts, t.alive(w.arg(now)))
	w.add("t.confidence >= %s", int64(math.Ceil(q.MinConfidence*1000)))
	if len(q.Kinds) > 0 {
		w.parts = append(w.parts, t.d.In("t.kind", w.arg(states(q.Kinds))))
	}
	if len(q.AnyTag) > 0 {
		w.parts = append(w.parts, t.d.Overlap("t.tags", w.arg(q.AnyTag)))
	}
	const from = ` FROM memory_vectors v JOIN memories t ON t.namespace = v.namespace AND t.id = v.memory_id WHERE `
	if there > q.Compare {
		if out.NotCompared, err = t.cutVectors(ctx, &w, from, q.Compare); err != nil {
			return out, err
		}
	}
	limit := w.arg(q.Compare)
	var best memory.Similar
	var h memory.Hit
	var thousandths int64
	same := false
	compare := dbkit.Passing(func(vector []byte) { h.Similarity, same = q.Vector.Similarity(vector) })
	err = t.each(ctx, func(row dbkit.Scanner) error {
		if err := row.Scan(&h.Entry.ID, &thousandths, dbkit.At(&h.Entry.UpdateTime), compare); err != nil {
			return err
		}
		if h.Entry.Confidence = float64(thousandths) / 1000; same {
			best.Add(h)
		}
		return nil
	}, `SELECT t.id, t.confidence, t.update_time, v.vector`+from+strings.Join(w.parts, " AND ")+` LIMIT `+limit, w.args...)
	out.Hits = best.Best()
	return out, err
}

// cutVectors narrows a search to as many vectors as are compared, those of the entries that were first
// written last, and counts the others. It reads no vector.
func (t tx) cutVectors(ctx context.Context, w *where, from string, most int) (more int, err error) {
	cond := strings.Join(w.parts, " AND ")
	there, err := t.count(ctx, `SELECT 1`+from+cond, w.args...)
	if err != nil || there <= most {
		return 0, err
	}
	if most <= 0 {
		return there, nil
	}
	var last string
	if err := t.row(ctx, `SELECT min(i) FROM (SELECT v.memory_id AS i`+from+cond+` ORDER BY v.memory_id DESC LIMIT `+strconv.Itoa(most)+`) c`, w.args...).Scan(&last); err != nil {
		return 0, err
	}
	w.add("v.memory_id >= %s", last)
	return there - most, nil
}

// modelsLooked bounds the models whose vectors are replaced at a time. They are those that executors
// had: a client may name any number of models, but what it gave a vector of its own is no work for
// executors.
const modelsLooked = 64

// dueToEmbed are the namespaces of which a model, $1, has made no vector of something, at most $2, with
// the model that they have vectors of instead: those first whose entry waits longest. It skips from
// each model, and of each from namespace to namespace, however many entries they have.
func dueToEmbed(d dbkit.Dialect) string {
	return `WITH RECURSIVE models (m, k) AS (SELECT min(embedded), 1 FROM memories WHERE own_vector = 0 UNION ALL
			SELECT (SELECT min(x.embedded) FROM memories x WHERE x.embedded > models.m AND x.own_vector = 0), k + 1 FROM models WHERE m IS NOT NULL AND k < ` + strconv.Itoa(modelsLooked) + `),
		places (m, n) AS (SELECT m, (SELECT min(x.namespace) FROM memories x WHERE x.embedded = models.m AND x.own_vector = 0) FROM models WHERE m IS NOT NULL AND m <> $1 UNION ALL
			SELECT m, (SELECT min(x.namespace) FROM memories x WHERE x.embedded = places.m AND x.namespace > places.n AND x.own_vector = 0) FROM places WHERE n IS NOT NULL)
		SELECT m, n FROM (SELECT m, n, (SELECT min(x.embed_after) FROM memories x WHERE x.embedded = places.m AND x.namespace = places.n AND x.own_vector = 0) AS due
			FROM places WHERE n IS NOT NULL) w WHERE due <= ` + d.Now() + ` ORDER BY due, n, m LIMIT $2`
}

// LeaseUnembedded implements store.Store. In the first round each namespace has its share, and in the
// next ones what others have left.
func (s *Store) LeaseUnembedded(ctx context.Context, model string, limit int, hold time.Duration) (out []memory.Entry, err error) {
	type due struct{ model, namespace string }
	err = s.db.Pool.Update(ctx, func(ctx context.Context, q dbkit.Querier) error {
		out = nil
		t := tx{q, s.d, nil}
		waiting, err := collect(ctx, t, func(row dbkit.Scanner) (d due, err error) {
			err = row.Scan(&d.model, &d.namespace)
			return d, err
		}, dueToEmbed(s.d), model, limit)
		for err == nil && len(waiting) > 0 && len(out) < limit {
			share := max(1, (limit-len(out))/len(waiting))
			var more []due
			for _, d := range waiting {
				n := min(share, limit-len(out))
				if n == 0 {
					break
				}
				some, err := t.leaseUnembedded(ctx, d.namespace, d.model, n, hold)
				if err != nil {
					return err
				}
				if out = append(out, some...); len(some) == n {
					more = append(more, d)
				}
			}
			waiting = more
		}
		return err
	})
	return out, err
}

// leaseUnembedded hands out the oldest entries of a namespace that have a vector of a model, or none at all.
func (t tx) leaseUnembedded(ctx context.Context, namespace, model string, limit int, hold time.Duration) ([]memory.Entry, error) {
	return collect(ctx, t, func(row dbkit.Scanner) (e memory.Entry, err error) {
		var value string
		err = row.Scan(&e.Namespace, &e.ID, &e.Key, &e.Text, &value, &e.Tags, &e.Revision)
		e.Value, e.Tags = []byte(value), trim(e.Tags)
		return e, err
	}, `WITH due (n, i) AS MATERIALIZED (SELECT namespace, id FROM memories WHERE embedded = $1 AND namespace = $2 AND own_vector = 0 AND embed_after <= `+t.d.Now()+`
			ORDER BY embed_after, id LIMIT $3`+t.d.LockedFree()+`)
		UPDATE memories SET embed_after = `+t.d.Now()+` + `+t.d.Span(`$4`)+` FROM due WHERE namespace = due.n AND id = due.i
		RETURNING namespace, id, key, text, value, tags, revision`, model, namespace, limit, hold)
}
