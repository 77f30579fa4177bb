package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// MaxCalls is how many of the newest entries of a namespace forecasts of graphs are made of.
	MaxCalls = 2000
	// leastCalls is how many calls of a model must be known to forecast another one.
	leastCalls = 5
	// assumedTimes is how many items a map has, and how often a loop goes round, where nothing tells.
	assumedTimes = 10
	// modelActor is the actor that the calls of models are booked under, those of agents among them.
	modelActor = "llm"
	// spawnActor starts runs, as maps of definitions do.
	spawnActor = "spawn"
)

// Calls are model calls that were booked in a namespace. The zero value has none.
type Calls struct {
	// byModel are the calls of each model, and under "" those of all.
	byModel map[string][]usage.Entry
	// byActor and byModelTook are how long attempts took that have ended well, in milliseconds: those of each
	// actor, and those that asked each model.
	byActor, byModelTook map[string][]*int64
}

// NewCalls takes what has ended well out of entries.
func NewCalls(entries []usage.Entry) Calls {
	c := Calls{map[string][]usage.Entry{}, map[string][]*int64{}, map[string][]*int64{}}
	for i := range entries {
		if e := &entries[i]; e.Source == usage.Executor && e.DurationMS > 0 && !e.Failed {
			c.byActor[e.Actor] = append(c.byActor[e.Actor], &e.DurationMS)
			if e.Actor == modelActor {
				c.byModelTook[e.Model] = append(c.byModelTook[e.Model], &e.DurationMS)
			}
		}
		if e := &entries[i]; e.Source == usage.Executor && e.Kind != usage.Tool && e.Kind != usage.Embedding && e.Actor == modelActor && e.Model != "" && !e.Failed {
			c.byModel[e.Model] = append(c.byModel[e.Model], *e)
			c.byModel[""] = append(c.byModel[""], *e)
		}
	}
	return c
}

// of tells what one call of a model takes. ok is false if too few of its calls are known.
func (c Calls) of(model string) (cost, tokens Amount, ok bool) {
	calls := c.byModel[model]
	if len(calls) < leastCalls {
		return cost, tokens, false
	}
	var costs, sums []*int64
	for i := range calls {
		sum := calls[i].InputTokens + calls[i].OutputTokens
		costs, sums = append(costs, calls[i].CostNanoUSD), append(sums, &sum)
	}
	if cost = percentiles(costs); cost.Runs < leastCalls {
		cost = Amount{}
	}
	return cost, percentiles(sums), true
}

// AsksModels reports whether a node of the graph asks a model.
func AsksModels(g *workgraph.Graph) bool {
	return slices.ContainsFunc(g.Nodes, func(n workgraph.Node) bool {
		_, ok := modelCall(&n)
		return ok
	})
}

// expected adds up what the nodes of a graph that ask a model take, and notes what that rests on.
type expected struct {
	calls        Calls
	cost, tokens Amount
	// byModel, byAny and byLimit are the nodes by what they are forecast from. assumed and unknown are those
	// of which a number of calls is assumed, and of which nothing is known.
	byModel, byAny, byLimit, assumed, unknown []string
}

func newExpected(calls Calls) *expected {
	return &expected{calls: calls, cost: Amount{P50: new(int64), P90: new(int64)}, tokens: Amount{P50: new(int64), P90: new(int64)}}
}

// add counts a node that may be visited so often; below 0 nothing bounds that.
func (x *expected) add(n *workgraph.Node, asks modelArgs, bound *NodeBound, visits int64) {
	calls := bound.Calls
	if calls == nil {
		x.assumed = append(x.assumed, n.ID)
		if visits < 0 {
			visits = assumedTimes
		}
		one := max(asks.Times, 1)
		calls = product(&one, visits)
		if n.Map != nil {
			calls = product(calls, assumedTimes)
		}
	}
	cost, tokens, ok := x.calls.of(asks.Model)
	once := int64(1)
	switch {
	case ok && asks.Model != "":
		x.byModel = append(x.byModel, n.ID)
	case ok:
		x.byAny = append(x.byAny, n.ID)
	case bound.Tokens != nil:
		// The limits bound all calls of the node together.
		x.byLimit = append(x.byLimit, n.ID)
		cost, tokens, calls = Amount{P50: bound.NanoUSD, P90: bound.NanoUSD}, Amount{P50: bound.Tokens, P90: bound.Tokens}, &once
	default:
		x.unknown = append(x.unknown, n.ID)
	}
	for _, sum := range []struct{ of, one *Amount }{{&x.cost, &cost}, {&x.tokens, &tokens}} {
		sum.of.P50, sum.of.P90 = plus(sum.of.P50, both(sum.one.P50, calls)), plus(sum.of.P90, both(sum.one.P90, calls))
	}
}

// other counts a node that asks no model itself. What the runs use that it starts is not known.
func (x *expected) other(n *workgraph.Node) {
	if n.Actor == spawnActor {
		x.unknown = append(x.unknown, n.ID)
		x.cost, x.tokens = Amount{}, Amount{}
	}
}

// product is a product with a positive number, nil if it does not fit.
func product(a *int64, n int64) *int64 { return both(a, &n) }

// both is the product of two numbers that are not negative, nil if one is not known or it does not fit.
func both(a, b *int64) *int64 {
	switch {
	case a == nil || b == nil:
		return nil
	case *a == 0 || *b == 0:
		return new(int64)
	}
	return times(*a, *b)
}

// finish writes the sums into the forecast, with what they rest on.
func (x *expected) finish(f *Forecast) {
	f.Cost.P50, f.Cost.P90, f.Tokens.P50, f.Tokens.P90 = x.cost.P50, x.cost.P90, x.tokens.P50, x.tokens.P90
	f.note("P50 and P90 add up those of the nodes that ask a model: what one call takes, times how often it may be made. Loops and agents that end early need less.")
	for _, of := range []struct {
		nodes []string
		text  string
	}{
		{x.byModel, "By calls of their model that were booked in the namespace lately, prompts included: %s."},
		{x.byAny, "They name no model, so by booked calls of all models: %s."},
		{x.byLimit, fmt.Sprintf("Fewer than %d calls of their model are known, so at the limits of their answers, prompts left out: %%s.", leastCalls)},
		{x.assumed, fmt.Sprintf("Nothing tells how often they are done, so %d items or rounds are assumed: %%s.", assumedTimes)},
		{x.unknown, "Neither booked calls nor a limit tell what they use, so the sums are not known: %s."},
	} {
		if len(of.nodes) > 0 {
			f.note(of.text, listed(of.nodes))
		}
	}
}

// listed names some of the nodes.
func listed(nodes []string) string {
	nodes = slices.Clone(nodes)
	rest := ""
	if n := len(nodes) - maxNamed; n > 0 {
		nodes, rest = nodes[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(nodes, ", ") + rest
}
