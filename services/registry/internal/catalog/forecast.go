package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// MaxSamples is how many of the newest ended runs of a version forecasts are made of.
	MaxSamples = 200

	// maxNodes is how many nodes a forecast shows, and maxNamed how many names a note does.
	maxNodes, maxNamed = 100, 10
	// agentRounds is how many rounds an agent has that states no number.
	agentRounds = 10
)

// Sample is what one ended run of a version needed. What is not known is nil.
type Sample struct {
	Failed bool
	// Unpriced says that calls have no known price; NanoUSD is nil then.
	Unpriced                    bool
	NanoUSD, Tokens, DurationMS *int64
}

// Sampled is what a run was measured as beside its history.
type Sampled struct {
	UnpricedCalls int64
	// Duration is nil if it is not known.
	Duration *time.Duration
}

// NewSample returns the sample of a run that completed or failed. whole says that the history has all
// that the run and those below it used.
func NewSample(h History, m Sampled, whole bool) Sample {
	s := Sample{Failed: h.Failed > 0}
	if whole {
		s.Tokens, s.Unpriced = &h.Tokens, m.UnpricedCalls > 0
		if !s.Unpriced {
			s.NanoUSD = &h.NanoUSD
		}
	}
	if m.Duration != nil {
		ms := m.Duration.Milliseconds()
		s.DurationMS = &ms
	}
	return s
}

// Basis is what a forecast is made of. Its numbers are those of the API.
type Basis int16

// The bases.
const (
	FromHistory Basis = iota + 1
	FromGraph
)

// Amount is what is known of one amount.
type Amount struct {
	P50, P90, Budget, Answers *int64
	Runs                      int
}

// Forecast tells what a run of a version may need. What is not known is nil.
type Forecast struct {
	Basis                    Basis
	Cost, Tokens, DurationMS Amount
	Runs, Failed, Unpriced   int
	Nodes                    []NodeBound
	NodesLeftOut             int
	Notes                    []string
}

// NodeBound is what a graph bounds of one node that calls a model.
type NodeBound struct {
	NodeID, Actor, Model   string
	Calls, Tokens, NanoUSD *int64
	Unknown                string
}

// percentiles are those of nearest rank. There is always a value that so many did not exceed.
func percentiles(values []*int64) (a Amount) {
	var known []int64
	for _, v := range values {
		if v != nil {
			known = append(known, *v)
		}
	}
	if a.Runs = len(known); a.Runs == 0 {
		return a
	}
	slices.Sort(known)
	rank := func(p int) *int64 { return &known[(len(known)*p+99)/100-1] }
	a.P50, a.P90 = rank(50), rank(90)
	return a
}

// ForecastHistory is made of the samples of a version.
func ForecastHistory(v *Version, samples []Sample) Forecast {
	f := Forecast{Basis: FromHistory, Runs: len(samples)}
	var cost, tokens, took []*int64
	for _, s := range samples {
		if s.Failed {
			f.Failed++
		}
		if s.Unpriced {
			f.Unpriced++
		}
		cost, tokens, took = append(cost, s.NanoUSD), append(tokens, s.Tokens), append(took, s.DurationMS)
	}
	f.Cost, f.Tokens, f.DurationMS = percentiles(cost), percentiles(tokens), percentiles(took)
	f.note("It is made of the newest %d runs of this version that completed or failed (%d failed), and all runs below them; at most %d are kept.", f.Runs, f.Failed, MaxSamples)
	if f.Unpriced > 0 {
		f.note("%d of them made calls whose price is not known; their cost is left out, and may be higher.", f.Unpriced)
	}
	if n := f.Runs - f.Unpriced - f.Cost.Runs; n > 0 {
		f.note("The usage of %d of them is not known.", n)
	}
	if n := f.Runs - f.DurationMS.Runs; n > 0 {
		f.note("The time of %d of them is not known.", n)
	}
	f.budget(v)
	return f
}

// Earlier are the samples of an earlier version of the workflow. The zero value has none.
type Earlier struct {
	Version int64
	Samples []Sample
}

func (e Earlier) took() (out []*int64) {
	for _, s := range e.Samples {
		out = append(out, s.DurationMS)
	}
	return out
}

// Models are the models that the nodes of a graph name.
func Models(g *workgraph.Graph) (out []string) {
	for i := range g.Nodes {
		if c, ok := modelCall(&g.Nodes[i]); ok && c.Model != "" {
			out = append(out, c.Model)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ForecastGraph is made of the graph of a version without runs, and of calls of models that were booked in
// its namespace. It knows what answers come to at their limits. The time is that of runs of an earlier
// version, if there are any.
func ForecastGraph(v *Version, g *workgraph.Graph, prices usage.Book, calls Calls, earlier Earlier, now time.Time) Forecast {
	f := Forecast{Basis: FromGraph}
	visits := visitBounds(g)
	var others []string
	tokens, cost := new(int64), new(int64)
	sum := newExpected(calls)
	for i := range g.Nodes {
		call, ok := modelCall(&g.Nodes[i])
		if !ok {
			others = append(others, g.Nodes[i].Actor)
			sum.other(&g.Nodes[i])
			continue
		}
		n := call.bound(&g.Nodes[i], visits[i], prices, now)
		tokens, cost = plus(tokens, n.Tokens), plus(cost, n.NanoUSD)
		sum.add(&g.Nodes[i], call, &n, visits[i])
		if len(f.Nodes) < maxNodes {
			f.Nodes = append(f.Nodes, n)
		} else {
			f.NodesLeftOut++
		}
	}
	if ended := v.History.Completed + v.History.Failed; v.Number == 0 {
		f.note("It is no version of the catalog, so no run of it is known.")
	} else if ended > 0 {
		f.note("%d runs of this version have ended, and none of them was kept for forecasts.", ended)
	} else {
		f.note("No run of this version has completed or failed yet.")
	}
	if len(f.Nodes) > 0 {
		f.Tokens.Answers, f.Cost.Answers = tokens, cost
		f.note("It is made of the graph: the limits of the answers of its model calls, times how often each may be made. Prompts, retries and what tools of agents use are not in it.")
		sum.finish(&f)
	}
	if slices.Sort(others); len(others) > 0 {
		others = slices.Compact(others)
		names := errs.Clip(strings.Join(others[:min(len(others), maxNamed)], ", "), 400)
		if len(others) > maxNamed {
			names += fmt.Sprintf(" and %d more", len(others)-maxNamed)
		}
		f.note("What these actors use is not known: %s.", names)
	}
	f.time(g, visits, calls, earlier)
	f.budget(v)
	return f
}

// time is that of runs of an earlier version, else that of the critical path of the graph.
func (f *Forecast) time(g *workgraph.Graph, visits []int64, calls Calls, earlier Earlier) {
	if f.DurationMS = percentiles(earlier.took()); f.DurationMS.Runs > 0 {
		f.note("The time is that of %d runs of version %d, which had another graph.", f.DurationMS.Runs, earlier.Version)
		return
	}
	took, unknown := calls.path(g, visits)
	if len(unknown) > 0 {
		f.note("How long it takes is not known: fewer than %d attempts with a booked time are known of %s.", leastCalls, listed(unknown))
		return
	}
	if took.P50 == nil || took.P90 == nil || *took.P90 == 0 {
		f.note("How long it takes is not known before a run has ended.") // nothing of it was measured
		return
	}
	f.DurationMS = took
	f.note("The time is that of the critical path: booked attempts of the same model or actor, rounds one after the other, items side by side, and none for what only computes.")
}

func (f *Forecast) note(format string, args ...any) {
	f.Notes = append(f.Notes, fmt.Sprintf(format, args...))
}

func (f *Forecast) budget(v *Version) {
	f.Cost.Budget, f.Tokens.Budget = v.BudgetNanoUSD, v.BudgetTokens
	if v.BudgetNanoUSD != nil || v.BudgetTokens != nil {
		f.note("The definition has a budget, at which a run pauses.")
	}
}

// modelArgs are the arguments of an actor that asks a model.
type modelArgs struct {
	Model  string `json:"model"`
	Output int64  `json:"max_output_tokens"`
	// Times are the calls of one visit.
	Times int64 `json:"-"`
}

// modelCall is what a node asks a model for. ok is false if its actor is none that is known to ask one.
func modelCall(n *workgraph.Node) (c modelArgs, ok bool) {
	// An argument of another form tells nothing.
	named := func(name string, into any) { _ = json.Unmarshal(n.Named[name], into) }
	switch n.Actor {
	case "llm":
		named("model", &c.Model)
		named("max_output_tokens", &c.Output)
		c.Times = 1
		return c, true
	case "agent":
		c.Times = agentRounds
		named("reasoner_args", &c)
		named("max_rounds", &c.Times)
		return c, true
	}
	return c, false
}

func (c modelArgs) bound(n *workgraph.Node, visits int64, prices usage.Book, now time.Time) NodeBound {
	out := NodeBound{NodeID: n.ID, Actor: n.Actor, Model: c.Model}
	switch {
	case n.Map != nil:
		out.Unknown = "how many items it is done for is not known"
		return out
	case visits < 0 || c.Times < 1:
		out.Unknown = "nothing bounds how often it is done"
		return out
	}
	if out.Calls = times(visits, c.Times); out.Calls == nil {
		out.Unknown = "its bounds are too large"
		return out
	}
	if c.Output < 1 {
		out.Unknown = "it states no limit of its answers: max_output_tokens; that of its profile holds"
		return out
	}
	if out.Tokens = times(*out.Calls, c.Output); out.Tokens == nil {
		out.Unknown = "its bounds are too large"
		return out
	}
	if c.Model == "" {
		out.Unknown = "it names no model: its profile does"
		return out
	}
	if out.NanoUSD = dearest(prices, c.Model, *out.Tokens, now); out.NanoUSD == nil {
		out.Unknown = "the price of its model is not known"
	}
	return out
}

// dearest is what so many tokens of answers cost at the provider where they cost most: a graph names
// none.
func dearest(prices usage.Book, model string, tokens int64, now time.Time) (most *int64) {
	providers := []string{""}
	for _, p := range prices {
		providers = append(providers, p.Provider)
	}
	slices.Sort(providers)
	for _, provider := range slices.Compact(providers) {
		p, ok := prices.Find(provider, model, now)
		if !ok {
			continue
		}
		if cost, err := p.Cost(usage.Entry{OutputTokens: tokens}); err == nil && (most == nil || cost > *most) {
			most = &cost
		}
	}
	return most
}

// times is the product, nil if it does not fit. Both are positive.
func times(a, b int64) *int64 {
	if a > math.MaxInt64/b {
		return nil
	}
	p := a * b
	return &p
}

// plus is the sum, nil if one is not known or the sum does not fit.
func plus(a, b *int64) *int64 {
	if a == nil || b == nil || *a > math.MaxInt64-*b {
		return nil
	}
	s := *a + *b
	return &s
}

// limitActor is the actor of the node that stops a loop of a definition at its limit, its argument
// "max".
const limitActor = "flow/limit"

// visitBounds is how often a run may visit each node, -1 if nothing bounds that: once, or for nodes on
// a cycle or those that messages activate as often as they state. Where they state nothing, the limit
// of their loop holds, unless another loop is around it or within it.
func visitBounds(g *workgraph.Graph) []int64 {
	cycle := cycles(links(g))
	limits := map[int]int64{}
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.Actor == limitActor && cycle[i] > 0 {
			var most int64
			_ = json.Unmarshal(n.Named["max"], &most) // another form is no limit
			if _, another := limits[cycle[i]]; another || most < 1 {
				most = -1
			}
			limits[cycle[i]] = most
		}
	}
	bounds := make([]int64, len(g.Nodes))
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if bounds[i] = 1; cycle[i] == 0 && n.On == nil {
			continue
		}
		bounds[i] = int64(cmp.Or(n.MaxVisits, workgraph.DefaultMaxVisits))
		if most, ok := limits[cycle[i]]; ok && cycle[i] > 0 && bounds[i] < 0 {
			bounds[i] = most
		}
	}
	return bounds
}

// links are the nodes to which each node has an edge.
func links(g *workgraph.Graph) [][]int {
	at := make(map[string]int, len(g.Nodes))
	for i := range g.Nodes {
		at[g.Nodes[i].ID] = i
	}
	out := make([][]int, len(g.Nodes))
	for _, e := range g.Edges {
		if from, ok := at[e.From]; ok {
			if to, ok := at[e.To]; ok {
				out[from] = append(out[from], to)
			}
		}
	}
	return out
}

// cycles numbers the strong components from 1, as Tarjan finds them, and gives each node the number of
// its own: 0 if the node lies on no cycle. It keeps its own stack, because a graph may be a long chain.
func cycles(out [][]int) []int {
	type frame struct{ node, next int }
	n := len(out)
	index, low := make([]int, n), make([]int, n) // from 1; 0 is not seen yet
	on, itself, cycle := make([]bool, n), make([]bool, n), make([]int, n)
	var open []int
	seen, found := 0, 0
	for root := range n {
		if index[root] > 0 {
			continue
		}
		stack := []frame{{node: root}}
		for len(stack) > 0 {
			f := &stack[len(stack)-1]
			v := f.node
			if f.next == 0 {
				seen++
				index[v], low[v], on[v] = seen, seen, true
				open = append(open, v)
			}
			if f.next < len(out[v]) {
				w := out[v][f.next]
				f.next++
				switch {
				case w == v:
					itself[v] = true
				case index[w] == 0:
					stack = append(stack, frame{node: w})
				case on[w]:
					low[v] = min(low[v], index[w])
				}
				continue
			}
			stack = stack[:len(stack)-1]
			if len(stack) > 0 {
				p := stack[len(stack)-1].node
				low[p] = min(low[p], low[v])
			}
			if low[v] != index[v] {
				continue
			}
			from := len(open) - 1
			for open[from] != v {
				from--
			}
			found++
			for _, w := range open[from:] {
				on[w] = false
				if itself[w] || len(open)-from > 1 {
					cycle[w] = found
				}
			}
			open = open[:from]
		}
	}
	return cycle
}
