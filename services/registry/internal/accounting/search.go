package accounting

import (
	"context"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/words"
)

// ReasonQueryEmpty refuses a search without a word.
const ReasonQueryEmpty = "QUERY_EMPTY"

// Match is an epic that was found.
type Match struct {
	Epic epic.Epic
	Hit  epic.Hit
	// Slugs are the workflows of the epic and of its tasks, at most store.MaxSlugs.
	Slugs []string
}

// SearchEpics finds epics by the words of a text. after is the last match of the page before, of which ID and
// score count. Of what it finds it returns at most limit.
func (b *Accounts) SearchEpics(ctx context.Context, text string, q store.SearchQuery, after epic.Hit, limit int) ([]Match, error) {
	q.Words = words.OfQuery(text)
	if len(q.Words) == 0 {
		return nil, errs.New(errs.InvalidArgument, ReasonQueryEmpty, "the query has no word").
			Violate("query", ReasonQueryEmpty, "has no word").Hint("name words of the goal; ListEpics lists epics without any")
	}
	return view(ctx, b, q.Namespace, func(ctx context.Context, r store.Reader) ([]Match, error) {
		hits, err := r.FindEpics(ctx, q)
		if err != nil {
			return nil, err
		}
		epic.Rank(hits)
		if after.ID != "" {
			hits = slices.DeleteFunc(hits, func(h epic.Hit) bool { return h.Compare(after) <= 0 })
		}
		return matches(ctx, r, q.Namespace, hits[:min(len(hits), limit)])
	})
}

// NewestEpics finds epics by filters alone, the newest first, as ListEpics does, with their workflows.
func (b *Accounts) NewestEpics(ctx context.Context, q store.EpicQuery) (store.Found[Match], error) {
	return view(ctx, b, q.Namespace, func(ctx context.Context, r store.Reader) (out store.Found[Match], err error) {
		found, err := r.Epics(ctx, q)
		if err != nil {
			return out, err
		}
		hits := make([]epic.Hit, len(found.Rows))
		for i := range found.Rows {
			hits[i].ID = found.Rows[i].ID
		}
		out.Stopped = found.Stopped
		out.Rows, err = matches(ctx, r, q.Namespace, hits)
		return out, err
	})
}

// Size implements page.Row.
func (m Match) Size() int { return m.Epic.Size() + 64*(len(m.Slugs)+len(m.Hit.Weights)) }

// matchesBatch is how many epics are read at once; a page ends at its bytes, however many were found.
const matchesBatch = 50

// matches reads what was found, in its order, until a page is full.
func matches(ctx context.Context, r store.Reader, namespace string, hits []epic.Hit) (out []Match, err error) {
	var g page.Gauge
	for some := range slices.Chunk(hits, matchesBatch) {
		ids := make([]string, len(some))
		for i, h := range some {
			ids[i] = h.ID
		}
		epics, err := r.EpicsOf(ctx, namespace, ids)
		if err != nil {
			return nil, err
		}
		slugs, err := r.SlugsOf(ctx, namespace, ids)
		if err != nil {
			return nil, err
		}
		for _, h := range some {
			e, there := epics[h.ID]
			if !there {
				continue
			}
			m := Match{Epic: e, Hit: h, Slugs: withOwn(slugs[h.ID], e.WorkflowSlug)}
			m.Slugs = m.Slugs[:min(len(m.Slugs), store.MaxSlugs)]
			out = append(out, m)
			if g.Add(m) {
				return out, nil
			}
		}
	}
	return out, nil
}

// withOwn are the workflows of the tasks of an epic, behind that of the epic itself unless a task ran a
// version of it.
func withOwn(ofTasks []string, own string) []string {
	if own == "" || slices.ContainsFunc(ofTasks, func(w string) bool { return w == own || strings.HasPrefix(w, own+"@") }) {
		return ofTasks
	}
	return slices.Insert(ofTasks, 0, own)
}

// sameText reports whether a task is found by the same words as before.
func sameText(a, b *epic.Task) bool {
	return a.Title == b.Title && a.Description == b.Description && a.ResultSummary == b.ResultSummary && slices.Equal(a.Tags, b.Tags)
}

// words keeps by which words the epic of the task is found.
func (w *work) words(ctx context.Context) error {
	if sameText(&w.before, &w.task) {
		return nil
	}
	return w.tx.AddWords(ctx, w.task.Namespace, w.epic.ID, w.task.Words().Since(w.before.Words()))
}

// epicWords keeps by which of its own words an epic is found.
func epicWords(ctx context.Context, tx store.Tx, before, after *epic.Epic) error {
	if before.Title == after.Title && before.Description == after.Description && before.ResultSummary == after.ResultSummary &&
		slices.Equal(before.Tags, after.Tags) {
		return nil
	}
	return tx.AddWords(ctx, after.Namespace, after.ID, after.Words().Since(before.Words()))
}
