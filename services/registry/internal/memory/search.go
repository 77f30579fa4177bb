package memory

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/learned"
	"github.com/epigraph-run/epigraph/services/registry/internal/words"
)

// MaxFound is how many rows of words a search looks at.
const MaxFound = 4096

// Words are those by which an entry is found.
func (e *Entry) Words() words.Weights {
	w := words.Weights{}
	w.Add(8, e.Key)
	w.Add(6, e.Tags...)
	w.Add(4, e.Text)
	w.Add(2, texts(e.Value)...)
	return w
}

// Query says what is searched; all that is set must hold.
type Query struct {
	Namespace string
	// Scopes are those that are read, and no others.
	Scopes []Scope
	// Text has the words; without any the entries that were first written last are found.
	Text string
	// Vector stands for the meaning of the query; nil for a search by words alone.
	Vector *Embedding
	// Compare is how many vectors are compared at most.
	Compare int
	// Key is that of one entry of each scope.
	Key   string
	Kinds []Kind
	// Agent has learned the entries; empty for any.
	Agent string
	// AnyTag matches entries that have one of these.
	AnyTag        []string
	MinConfidence float64
	Limit         int
}

// Words are those of the query.
func (q *Query) Words() []string { return words.OfQuery(q.Text) }

// Found is what a search has found.
type Found struct {
	// Hits are in their order, the best first.
	Hits []Hit
	// NotCompared is how many entries were not compared by their meaning, because there are more than one
	// search compares.
	NotCompared int
}

// Hit is an entry that a search has found.
type Hit struct {
	Entry Entry
	// Weights are those of the words of the query that it has.
	Weights words.Weights
	// Similarity is the cosine of the angle between its vector and that of the query; 0 if it was not
	// found by its meaning.
	Similarity float64
	// Score ranks it among those of one query; greater is better.
	Score int64
}

// Rank gives hits their scores and puts the best first: those that have most of the words, then those
// in which the words weigh most by the confidence of the entry, then the newest.
func Rank(hits []Hit) {
	for i, h := range hits {
		var weight int64
		for _, n := range h.Weights {
			weight += min(n, words.FullWeight)
		}
		hits[i].Score = int64(len(h.Weights))*words.Score + int64(float64(weight)*1000*h.Entry.Confidence)
	}
	slices.SortFunc(hits, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), b.Entry.UpdateTime.Compare(a.Entry.UpdateTime), cmp.Compare(b.Entry.ID, a.Entry.ID))
	})
}

// MethodForget is the RPC whose records say who has forgotten entries. Forgetting leaves these records.
const MethodForget = "ForgetMemory"

// Read is the record of who has read what, or has forgotten it.
type Read struct {
	Namespace, ID string
	Time          time.Time
	// Method is the name of the RPC.
	Method string
	// RunID, NodeID and UserID are those of the run that read; empty for clients.
	RunID, NodeID, UserID string
	Principal             string
	Query                 string
	Scopes                []string
	// Entries are the ids of what was told, at most MaxReadEntries of Told. What was forgotten has none, and
	// Told is how many entries that were.
	Entries []string
	Told    int
}

// MaxReadEntries is how many entries a record of a read names.
const MaxReadEntries = 100

// Tells notes what is told.
func (r *Read) Tells(ids ...string) {
	r.Told += len(ids)
	r.Entries = append(r.Entries, ids[:min(len(ids), MaxReadEntries-len(r.Entries))]...)
}

// MaxReadQuery bounds the query that a record shows, in bytes.
const MaxReadQuery = 512

// Size implements page.Row.
func (r Read) Size() int {
	n := 256 + len(r.Query)
	for _, list := range [][]string{r.Scopes, r.Entries} {
		for _, s := range list {
			n += 16 + len(s)
		}
	}
	return n
}

// Passes reports whether an entry passes the filters of the query, and has not expired.
func (q *Query) Passes(e *Entry, now time.Time) bool {
	return !e.Expired(now) && e.Confidence >= q.MinConfidence && (len(q.Kinds) == 0 || slices.Contains(q.Kinds, e.Kind)) && (q.Agent == "" || strings.HasPrefix(e.Key, learned.Of(q.Agent))) &&
		(len(q.AnyTag) == 0 || slices.ContainsFunc(q.AnyTag, func(t string) bool { return slices.Contains(e.Tags, t) }))
}
