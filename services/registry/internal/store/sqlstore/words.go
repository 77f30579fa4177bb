package sqlstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/words"
)

// maxPairs is how many pairs of a word and what may have it are looked up for one search.
const maxPairs = 2048

// wordTable is a table of the words of something: of epics, or of entries of the memory.
type wordTable struct {
	// name is that of the table, id the column of what has the word.
	name, id string
	// placed says that the key of the table has the place of what has the word, too.
	placed bool
}

// lookUpWords looks up which of the words that many have are those of what was found by other words. of
// tells the place of something, and the words of which not all that have them are known there. If there
// are too many pairs, those are looked up that come first by what is known.
func (t tx) lookUpWords(ctx context.Context, table wordTable, namespace string, found map[string]words.Weights, of func(id string) (place string, cut []string)) error {
	type hit struct {
		id string
		// rare is how many of its words are known of all that have them, weight what all of them weigh.
		rare   int
		weight int64
	}
	hits := make([]hit, 0, len(found))
	for id, has := range found {
		h := hit{id: id, rare: len(has)}
		_, cut := of(id)
		for _, word := range cut {
			if has[word] != 0 {
				h.rare--
			}
		}
		for _, n := range has {
			h.weight += min(n, words.FullWeight)
		}
		hits = append(hits, h)
	}
	// Any of them may have all of the other words. So those come first that have most of the words of which
	// everything is known.
	slices.SortFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.rare, a.rare), cmp.Compare(len(found[b.id]), len(found[a.id])), cmp.Compare(b.weight, a.weight), cmp.Compare(b.id, a.id))
	})
	var pairs [][]any
	for _, h := range hits {
		place, cut := of(h.id)
		if len(pairs)+len(cut) > maxPairs {
			break
		}
		for _, word := range cut {
			if found[h.id][word] == 0 {
				pairs = append(pairs, []any{word, h.id, place})
			}
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	columns := [][2]string{{"word", "text"}, {"id", "text"}, {"place", "text"}}
	cond := `p.namespace = $1 AND p.word = w.word AND p.` + table.id + ` = w.id`
	if table.placed {
		cond += ` AND p.place = w.place`
	}
	return t.each(ctx, func(row dbkit.Scanner) error {
		var word, id string
		var weight int64
		err := row.Scan(&word, &id, &weight)
		found[id][word] = weight
		return err
	}, `SELECT p.word, p.`+table.id+`, p.weight FROM `+t.d.Rows(`w`, 2, columns...)+t.d.LookUp(table.name, `p`, cond),
		append([]any{namespace}, t.d.RowArgs(len(columns), pairs)...)...)
}
