package sqlstore

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/learned"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/words"
)

// maxLearnedPairs bounds how many pairs of an entry and a word a search of what an agent has learned
// looks up.
const maxLearnedPairs = 4 * memory.MaxFound

// learnedBy are the keys of what an agent has learned: from one on, and before another.
func learnedBy(agent string) (from, end string) {
	from = learned.Of(agent)
	return from, strings.TrimSuffix(from, ":") + ";" // which comes behind the colon
}

// findLearned finds what an agent has learned. The entries of the agent are looked for by their keys, so that
// those of others do not hide them however many there are; those that were learned last come first.
func (t tx) findLearned(ctx context.Context, q memory.Query, wanted []string, now time.Time) (hits []memory.Hit, err error) {
	look := memory.MaxFound / len(q.Scopes)
	if len(wanted) > 0 {
		look = min(look, maxLearnedPairs/len(q.Scopes)/len(wanted))
	}
	from, end := learnedBy(q.Agent)
	for _, s := range q.Scopes {
		w := where{parts: []string{"t.namespace = $1", "t.place = $2"}, args: []any{q.Namespace, s.Place()}}
		w.add("t.key >= %s", from)
		w.add("t.key < %s", end)
		w.parts = append(w.parts, t.alive(w.arg(now)))
		w.add("t.confidence >= %s", int64(math.Ceil(q.MinConfidence*1000)))
		if len(q.Kinds) > 0 {
			w.parts = append(w.parts, t.d.In("t.kind", w.arg(states(q.Kinds))))
		}
		if len(q.AnyTag) > 0 {
			w.parts = append(w.parts, t.d.Overlap("t.tags", w.arg(q.AnyTag)))
		}
		entries := `SELECT t.id, t.confidence, t.update_time FROM memories t` + w.end("t.update_time DESC, t.id DESC", look)
		query := `SELECT t.id, t.confidence, t.update_time, '', 0 FROM (` + entries + `) t`
		if len(wanted) > 0 {
			query = `SELECT t.id, t.confidence, t.update_time, p.word, p.weight FROM (` + entries + `) t
				JOIN memory_words p ON p.namespace = $1 AND p.place = $2 AND p.memory_id = t.id AND ` + t.d.In("p.word", w.arg(wanted))
		}
		at := map[string]int{}
		if err := t.each(ctx, func(row dbkit.Scanner) error {
			h := memory.Hit{Weights: words.Weights{}}
			var thousandths, weight int64
			var word string
			if err := row.Scan(&h.Entry.ID, &thousandths, dbkit.At(&h.Entry.UpdateTime), &word, &weight); err != nil {
				return err
			}
			i, seen := at[h.Entry.ID]
			if !seen {
				i, h.Entry.Confidence = len(hits), float64(thousandths)/1000
				at[h.Entry.ID], hits = i, append(hits, h)
			}
			if word != "" {
				hits[i].Weights[word] = weight
			}
			return nil
		}, query, w.args...); err != nil {
			return nil, err
		}
	}
	return hits, nil
}
