// Package words owns the words by which epics and entries of the memory are found. It must not know what has
// them, any database or protocol.
package words

import "github.com/epigraph-run/epigraph/workflow/discover"

const (
	// MaxQuery is how many words of a query count.
	MaxQuery = 16
	// Score is what a word of the query is worth beside the weights of others.
	Score = 1 << 20
	// FullWeight is as much as a word counts, however often a text has it.
	FullWeight = 1000

	// most is how many different words of one text are found again: those that are added first.
	most = 200
)

// Weights are words with the weights that they have in something, or that a change adds to them.
type Weights map[string]int64

// Add gives the words of texts a weight more, as far as there is room for other words.
func (w Weights) Add(weight int64, texts ...string) {
	for _, word := range discover.Words(most, texts...) {
		if _, known := w[word]; known || len(w) < most {
			w[word] += weight
		}
	}
}

// Since is what these words add to those before: negative weights where there is less of a word.
func (w Weights) Since(before Weights) Weights {
	out := Weights{}
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

// OfQuery are the words of a query that count.
func OfQuery(text string) []string { return discover.Words(MaxQuery, text) }
