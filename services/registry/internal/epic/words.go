package epic

import (
	"cmp"
	"slices"

	"github.com/epigraph-run/epigraph/services/registry/internal/words"
)

// Words are those by which an epic is found, without those of its tasks.
func (e *Epic) Words() words.Weights {
	w := words.Weights{}
	w.Add(8, e.Title)
	w.Add(6, e.Tags...)
	w.Add(2, e.Description, e.ResultSummary)
	return w
}

// Words are those that a task adds to its epic.
func (t *Task) Words() words.Weights {
	w := words.Weights{}
	w.Add(4, t.Title)
	w.Add(3, t.Tags...)
	w.Add(1, t.Description, t.ResultSummary)
	return w
}

// Hit is an epic that a search has found.
type Hit struct {
	ID string
	// Weights are those of the words of the query that it has.
	Weights words.Weights
	// Score ranks it among those of one query; greater is better.
	Score int64
}

// Rank gives hits their scores and puts the best first: those that have most of the words, then those in
// which the words weigh most, then the newest.
func Rank(hits []Hit) {
	for i, h := range hits {
		var score int64
		for _, n := range h.Weights {
			score += words.Score + min(n, words.FullWeight)
		}
		hits[i].Score = score
	}
	slices.SortFunc(hits, Hit.Compare)
}

// Compare is negative if h comes before o.
func (h Hit) Compare(o Hit) int {
	return cmp.Or(cmp.Compare(o.Score, h.Score), cmp.Compare(o.ID, h.ID))
}

// SuccessRate is which part of the tasks that were completed or failed was completed; false if none was.
func (e *Epic) SuccessRate() (float64, bool) {
	ended := e.CompletedTasks + e.FailedTasks
	if ended == 0 {
		return 0, false
	}
	return float64(e.CompletedTasks) / float64(ended), true
}
