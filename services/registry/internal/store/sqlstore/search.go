package sqlstore

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/words"
)

// The words are rows of a table of our own on both databases. Their full-text indexes rank differently, read
// every row that has a common word before they rank the first, and share their lists among namespaces.

// wordRows is how many words one statement writes.
const wordRows = 500

// AddWords implements store.Tx.
func (t tx) AddWords(ctx context.Context, namespace, epicID string, added words.Weights) error {
	if len(added) == 0 {
		return nil
	}
	columns := [][2]string{{"namespace", "text"}, {"word", "text"}, {"epic_id", "text"}, {"weight", "bigint"}}
	var less []string
	for some := range slices.Chunk(slices.Sorted(maps.Keys(added)), wordRows) {
		rows := make([][]any, len(some))
		for i, w := range some {
			rows[i] = []any{namespace, w, epicID, added[w]}
			if added[w] < 0 {
				less = append(less, w)
			}
		}
		if _, err := t.Exec(ctx, `INSERT INTO epic_words (namespace, word, epic_id, weight)
			SELECT n.namespace, n.word, n.epic_id, n.weight FROM `+t.d.Rows(`n`, 1, columns...)+` WHERE true
			ON CONFLICT (namespace, word, epic_id) DO UPDATE SET weight = epic_words.weight + excluded.weight`,
			t.d.RowArgs(len(columns), rows)...); err != nil {
			return err
		}
	}
	if len(less) == 0 {
		return nil
	}
	_, err := t.Exec(ctx, `DELETE FROM epic_words WHERE namespace = $1 AND epic_id = $2 AND weight <= 0 AND `+t.d.In(`word`, `$3`), namespace, epicID, less)
	return err
}

// FindEpics implements store.Reader.
func (t tx) FindEpics(ctx context.Context, q store.SearchQuery) ([]epic.Hit, error) {
	look := store.MaxFound / len(q.Words)
	found := map[string]words.Weights{}
	see := func(word string) func(dbkit.Scanner) error {
		return func(row dbkit.Scanner) error {
			var id string
			var weight int64
			err := row.Scan(&id, &weight)
			if found[id] == nil {
				found[id] = words.Weights{}
			}
			found[id][word] = weight
			return err
		}
	}
	// cut are the words that more epics have.
	var cut []string
	for _, word := range q.Words {
		n := 0
		if err := t.each(ctx, func(row dbkit.Scanner) error { n++; return see(word)(row) },
			`SELECT epic_id, weight FROM epic_words WHERE namespace = $1 AND word = $2 ORDER BY epic_id DESC LIMIT $3`, q.Namespace, word, look); err != nil {
			return nil, err
		}
		if n == look {
			cut = append(cut, word)
		}
	}
	if err := t.sieve(ctx, q, found); err != nil {
		return nil, err
	}
	if err := t.lookUpWords(ctx, wordTable{name: "epic_words", id: "epic_id"}, q.Namespace, found, func(string) (string, []string) { return "", cut }); err != nil {
		return nil, err
	}
	hits := make([]epic.Hit, 0, len(found))
	for id, has := range found {
		hits = append(hits, epic.Hit{ID: id, Weights: has})
	}
	return hits, nil
}

// sieve takes out what does not pass the filters.
func (t tx) sieve(ctx context.Context, q store.SearchQuery, found map[string]words.Weights) error {
	ids := slices.Sorted(maps.Keys(found))
	var w where
	w.args = append(w.args, ids, q.Namespace)
	w.parts = []string{"true"}
	if len(q.States) > 0 {
		w.parts = append(w.parts, t.d.In("t.state", w.arg(states(q.States))))
	}
	if len(q.AnyTag) > 0 {
		w.parts = append(w.parts, t.d.Overlap("t.tags", w.arg(q.AnyTag)))
	}
	if q.Owners.UserID != "" {
		w.add("t.user_id = %s", q.Owners.UserID)
	}
	if q.Owners.OpenTo != "" {
		w.parts = append(w.parts, sameOrNone("t.user_id", w.arg(q.Owners.OpenTo)))
	}
	if !q.From.IsZero() {
		w.add("t.create_time >= %s", dbkit.Exact(q.From))
	}
	if !q.Until.IsZero() {
		w.add("t.create_time < %s", dbkit.Exact(q.Until))
	}
	if len(w.parts) == 1 || len(ids) == 0 {
		return nil
	}
	passed := map[string]bool{}
	err := t.each(ctx, func(row dbkit.Scanner) error {
		var id string
		err := row.Scan(&id)
		passed[id] = true
		return err
	}, `SELECT t.id FROM `+t.d.Lists(`w`, [2]string{"want", "text"})+t.d.LookUp(`epics`, `t`, `t.namespace = $2 AND t.id = w.want`)+
		` WHERE `+strings.Join(w.parts, " AND "), w.args...)
	maps.DeleteFunc(found, func(id string, _ words.Weights) bool { return !passed[id] })
	return err
}

// EpicsOf implements store.Reader.
func (t tx) EpicsOf(ctx context.Context, namespace string, ids []string) (map[string]epic.Epic, error) {
	out := make(map[string]epic.Epic, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	err := t.each(ctx, func(row dbkit.Scanner) error {
		e, err := scanEpic(row)
		out[e.ID] = e
		return err
	}, `SELECT `+epicColumns+` FROM `+t.d.Lists(`w`, [2]string{"want", "text"})+t.d.LookUp(`epics`, `t`, `t.namespace = $2 AND t.id = w.want`), ids, namespace)
	return out, err
}

// SlugsOf implements store.Reader. It skips from one slug to the next, however many tasks have each.
func (t tx) SlugsOf(ctx context.Context, namespace string, ids []string) (map[string][]string, error) {
	out := map[string][]string{}
	if len(ids) == 0 {
		return out, nil
	}
	const workflow = `CASE WHEN x.run_workflow <> '' THEN x.run_workflow ELSE x.workflow_slug END`
	next := func(epicID, after string) string {
		return `(SELECT min(` + t.d.Text(`(`+workflow+`)`) + `) FROM tasks x WHERE x.namespace = $2 AND x.epic_id = ` + epicID +
			` AND (` + workflow + `) <> '' AND ` + t.d.Text(`(`+workflow+`)`) + ` > ` + after + `)`
	}
	err := t.each(ctx, func(row dbkit.Scanner) error {
		var id, slug string
		err := row.Scan(&id, &slug)
		out[id] = append(out[id], slug)
		return err
	}, `WITH RECURSIVE s (epic_id, slug, n) AS (
			SELECT w.id, `+next(`w.id`, `''`)+`, 1 FROM `+t.d.Lists(`w`, [2]string{"id", "text"})+` UNION ALL
			SELECT s.epic_id, `+next(`s.epic_id`, `s.slug`)+`, s.n + 1 FROM s WHERE s.slug IS NOT NULL AND s.n < $3)
		SELECT epic_id, slug FROM s WHERE slug IS NOT NULL ORDER BY epic_id, n`, ids, namespace, store.MaxSlugs)
	return out, err
}
