package sqlstore

import (
	"context"
	"strings"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/fact"
)

var _ fact.Store = (*Store)(nil)

const (
	// FactLearnedAgain ends an insert of facts: one that is there already is replaced.
	FactLearnedAgain = ` ON CONFLICT (namespace, fact_id) DO UPDATE SET time = excluded.time, thread_id = excluded.thread_id, run_id = excluded.run_id, content = excluded.content`
	// TrimFacts removes the oldest facts of the agent $2 about the user $3 beyond $4 in number or $5 in
	// bytes.
	TrimFacts = `DELETE FROM facts WHERE namespace = $1 AND fact_id IN (SELECT x.fact_id FROM (
		SELECT f.fact_id, row_number() OVER w AS n, sum(length(f.content)) OVER w AS bytes FROM facts f WHERE f.namespace = $1 AND f.agent = $2 AND f.user_id = $3
		WINDOW w AS (ORDER BY f.time DESC, f.fact_id DESC)) x WHERE x.n > $4 OR x.bytes > $5)`
)

// ListFacts implements fact.Store.
func (s *Store) ListFacts(ctx context.Context, namespace string, f fact.Filter, after page.Cursor, limit int) ([]fact.Fact, error) {
	var a arguments
	conds := []string{"f.namespace = " + a.add(namespace)}
	if f.Agent != "" {
		conds = append(conds, "f.agent = "+a.add(f.Agent))
	}
	if f.User != nil {
		conds = append(conds, "f.user_id = "+a.add(*f.User))
	}
	if !after.IsZero() {
		conds = append(conds, "(f.time, f.fact_id) < ("+a.add(after.CreateTime)+", "+a.add(after.ID)+")")
	}
	rows, err := s.db.Read.Query(ctx, `SELECT f.fact_id, f.namespace, f.agent, f.user_id, f.name, f.content, f.thread_id, f.run_id, f.time FROM facts f WHERE `+
		strings.Join(conds, " AND ")+` ORDER BY f.time DESC, f.fact_id DESC LIMIT `+a.add(limit), a...)
	return dbkit.CollectPage(ctx, rows, err, func(rows dbkit.Rows) (f fact.Fact, err error) {
		var content []byte
		err = rows.Scan(&f.ID, &f.Namespace, &f.Agent, &f.User, &f.Name, &content, &f.Thread, &f.Run, dbkit.At(&f.Time))
		f.Content = string(content)
		return f, err
	})
}

// DeleteFact implements fact.Store.
func (s *Store) DeleteFact(ctx context.Context, namespace, id string) error {
	return s.db.Read.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		n, err := tx.Exec(ctx, `DELETE FROM facts WHERE namespace = $1 AND fact_id = $2`, namespace, id)
		if err == nil && n == 0 {
			return fact.NotFound(id)
		}
		return err
	})
}
