package sqlstore

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// Advance implements store.Tx. The row without a source is the lock of the namespace: without it two
// transactions could each find that the first change of a source is new.
func (t tx) Advance(ctx context.Context, namespace string, to []store.Place, now time.Time) ([]bool, error) {
	if len(to) == 0 {
		return nil, nil
	}
	if _, err := t.Exec(ctx, `INSERT INTO change_places (namespace, source, seq, time) VALUES ($1, '', 0, $2)
		ON CONFLICT (namespace, source) DO UPDATE SET time = excluded.time`, namespace, now); err != nil {
		return nil, err
	}
	var sources []string
	last := map[string]int64{}
	for _, p := range to {
		if _, seen := last[p.Source]; !seen {
			last[p.Source] = 0
			sources = append(sources, p.Source)
		}
	}
	if err := t.each(ctx, func(row dbkit.Scanner) error {
		var p store.Place
		err := row.Scan(&p.Source, &p.Seq)
		last[p.Source] = p.Seq
		return err
	}, `SELECT source, seq FROM change_places WHERE namespace = $1 AND `+t.d.In(`source`, `$2`), namespace, sources); err != nil {
		return nil, err
	}
	fresh, moved := make([]bool, len(to)), map[string]bool{}
	for i, p := range to {
		if fresh[i] = p.Seq > last[p.Source]; fresh[i] {
			last[p.Source], moved[p.Source] = p.Seq, true
		}
	}
	var rows [][]any
	for _, source := range sources {
		if moved[source] {
			rows = append(rows, []any{source, last[source]})
		}
	}
	if len(rows) == 0 {
		return fresh, nil
	}
	columns := [][2]string{{"source", "text"}, {"seq", "bigint"}}
	_, err := t.Exec(ctx, `INSERT INTO change_places (namespace, source, seq, time)
		SELECT $1, r.source, r.seq, $2 FROM `+t.d.Rows(`r`, 3, columns...)+` WHERE true
		ON CONFLICT (namespace, source) DO UPDATE SET seq = excluded.seq, time = excluded.time`,
		append([]any{namespace, now}, t.d.RowArgs(len(columns), rows)...)...)
	return fresh, err
}
