package epic

import (
	"cmp"
	"slices"

	"github.com/epigraph-run/epigraph/workflow/discover"
)

const (
	// MaxQueryWords is how many words of a query count.
	MaxQueryWords = 16

	// maxWords is how many different words of an epic, or of a task, are found again: those of its title and
	// tags first.
	maxWords = 200
	// fullWeight is as much as a word counts, however often the tasks of an epic have it.
	fullWeight = 1000
	// wordScore is what a word of the query is worth beside the weights of others.
	wordScore = 1 << 20
)

// Words are words with the weights that they have in an epic, or that a change adds to them.
type Words map[string]int64

// Words are those by which an epic is found, without those of its tasks.
func (e *Epic) Words() Words {
	w := Words{}
	w.add(8, e.Title)
	w.add(6, e.Tags...)
	w.add(2, e.Description, e.ResultSummary)
	return w
}

// Words are those that a task adds to its epic.
func (t *Task) Words() Words {
	w := Words{}
	w.add(4, t.Title)
	w.add(3, t.Tags...)
	w.add(1, t.Description, t.ResultSummary)
	return w
}

func (w Words) add(weight int64, texts ...string) {
	for _, word := range discover.Words(maxWords, texts...) {
		if _, known := w[word]; known || len(w) < maxWords {
			w[word] += weight
		}
	}
}

// Since is what these words add to those before: negative weights where there is less of a word.
func (w Words) Since(before Words) Words {
	out := Words{}
	for word, n := range w {
		if n -= before[word]; n != 0 {
			out[word] = n
		}
	}
	for word, n := range before {
		if _, there := w[word]; !there {
			out[word] = -n
		}
	}
	return out
}

// Hit is an epic that a search has found.
type Hit struct {
	ID string
	// Weights are those of the words of the query that it has.
	Weights Words
	// Score ranks it among those of one query; greater is better.
	Score int64
}

// Rank gives hits their scores and puts the best first: those that have most of the words, then those in
// which the words weigh most, then the newest.
func Rank(hits []Hit) {
	for i, h := range hits {
		var score int64
		for _, n := range h.Weights {
			score += wordScore + min(n, fullWeight)
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
