package discover

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// counts are what each place of an index has of a query. They are counted name by name, since most
// names are had by few workflows.
type counts struct {
	// capabilities and tags are how many of the wanted ones are there.
	capabilities, tags []uint16
	// words is the weight of the query's words that are there.
	words []float64
	// model says that a model fits.
	model, excluded []bool
}

// zeroed is n zeros, in the same memory if it is large enough.
func zeroed[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// search is a query under way.
type search struct {
	*counts
	// required is how many capabilities are asked, and wantedTags how many tags.
	required, wantedTags int
	// description is in lower case.
	description string
	// weight is the sum of the weights of all words of the query.
	weight float64
	limit  int
	best   []candidate
}

// begin counts what the workflows have of a query.
func (x *Index) begin(q Query) *search {
	c, _ := x.scratch.Get().(*counts)
	if c == nil {
		c = &counts{}
	}
	n := len(x.entries)
	c.capabilities, c.tags, c.words = zeroed(c.capabilities, n), zeroed(c.tags, n), zeroed(c.words, n)
	c.model, c.excluded = zeroed(c.model, n), zeroed(c.excluded, n)
	s := &search{counts: c, description: strings.ToLower(q.Description), limit: q.Limit}
	if s.limit <= 0 {
		s.limit = defaultLimit
	}
	s.limit = min(s.limit, MaxLimit)
	s.required = x.count(triggers, q.Triggers, c.capabilities) + x.count(nodeTypes, q.NodeTypes, c.capabilities) + x.count(tools, toolNames(q.Tools), c.capabilities)
	s.wantedTags = x.count(tags, q.Tags, c.tags)
	if q.ModelCapability != "" {
		s.required++
		x.countModels(strings.ToLower(q.ModelCapability), c)
	}
	for _, id := range q.Exclude[:min(len(q.Exclude), maxExclude)] {
		if place, ok := x.at[id]; ok {
			c.excluded[place] = true
		}
	}
	x.countWords(s, q.Text)
	return s
}

// count counts who has each of some names, and returns how many names there are.
func (x *Index) count(kind int, names []string, into []uint16) int {
	names = unique(names)
	for _, name := range names {
		for _, place := range x.tables[kind].of(name) {
			into[place]++
		}
	}
	return len(names)
}

// countModels counts those that have any model with part in its name, once.
func (x *Index) countModels(part string, c *counts) {
	t := &x.tables[models]
	for n, name := range t.names {
		if !strings.Contains(strings.ToLower(name), part) {
			continue
		}
		for _, place := range t.users[n] {
			if !c.model[place] {
				c.model[place] = true
				c.capabilities[place]++
			}
		}
	}
}

// countWords gives every word of a text a weight, more to words that fewer workflows have, and adds up
// the weights of those that each workflow has.
func (x *Index) countWords(s *search, text string) {
	for _, w := range wordsOf(maxQueryWords, text[:min(len(text), maxQuery)]) {
		users := x.tables[words].of(w)
		weight := math.Log1p(float64(len(x.at)) / (0.5 + float64(len(users))))
		s.weight += weight
		for _, place := range users {
			s.words[place] += weight
		}
	}
}

// candidate is a workflow that was rated.
type candidate struct {
	at        int
	id        string
	score     score
	relevance score
}

// before orders candidates, the better one first. Ids are compared last: they lie elsewhere in memory.
func (c candidate) before(other candidate) int {
	switch {
	case c.score != other.score:
		return cmp.Compare(other.score, c.score)
	case c.relevance != other.relevance:
		return cmp.Compare(other.relevance, c.relevance)
	}
	return cmp.Compare(c.id, other.id)
}

// rate takes an entry in if it is one of the best so far.
func (s *search) rate(at int, e *entry) {
	relevance := 0.0
	if s.weight > 0 {
		relevance = s.words[at] / s.weight
	}
	capability := share(int(s.capabilities[at]), s.required)
	if s.required == 0 && s.weight > 0 {
		if capability = relevance; relevance == 0 {
			return
		}
	}
	shared := jaccard(int(s.tags[at]), s.wantedTags, len(e.of(tags)))
	c := candidate{at: at, id: e.id, score: weigh(capability, shared, e.History, s.description != ""), relevance: scoreOf(relevance)}
	full := len(s.best) == s.limit
	// The description is looked at only where it decides: it is the longest part.
	if full && c.before(s.best[len(s.best)-1]) > 0 {
		return
	}
	if s.description != "" && !strings.Contains(e.description, s.description) {
		c.score = weigh(capability, shared, e.History, false)
	}
	i, _ := slices.BinarySearchFunc(s.best, c, candidate.before)
	if i == s.limit {
		return
	}
	if full {
		s.best = s.best[:s.limit-1]
	}
	s.best = slices.Insert(s.best, i, c)
}
