package compile

import (
	"strconv"

	"github.com/epigraph-run/epigraph/plan"
)

// actor returns the name of the actor for a problem: the one in the options, its tool if that is a known
// actor, or the default.
func (o *Options) actor(p plan.Problem, named map[string]bool) string {
	switch name := o.Actors[p.ID]; {
	case name != "":
		return name
	case p.Tool != "" && (named[p.Tool] || o.known(p.Tool)):
		return p.Tool
	case o.DefaultActor != "":
		return o.DefaultActor
	}
	return DefaultActor
}

// named returns the actors that the options name for single problems.
func (o *Options) named() map[string]bool {
	named := make(map[string]bool, len(o.Actors))
	for _, name := range o.Actors {
		named[name] = true
	}
	return named
}

// known reports whether an actor of this name exists, apart from those that the options name for single
// problems.
func (o *Options) known(actor string) bool {
	if actor == DefaultActor || actor == o.DefaultActor || o.Known != nil && o.Known(actor) {
		return true
	}
	return false
}

// Tools returns a warning for each problem with a tool that is no known actor, if the options name no actor
// for it. The default actor works on such a problem, and gets the tool and its arguments as arguments of its
// own.
func Tools(g plan.Graph, o Options) []plan.Diagnostic {
	parents := make(map[string]bool, len(g.Problems))
	for _, p := range g.Problems {
		parents[p.ParentID] = true
	}
	named := o.named()
	var out []plan.Diagnostic
	for _, p := range g.Problems {
		if p.Tool == "" || parents[p.ID] || o.Actors[p.ID] != "" || named[p.Tool] || o.known(p.Tool) {
			continue
		}
		out = append(out, plan.Diagnostic{
			Code: plan.UnknownTool, Severity: plan.Warning, Line: p.Line, Column: p.Column, Element: p.ID,
			Message: p.ID + " names the tool " + strconv.Quote(p.Tool) + ", for which no actor is named; " + o.actor(p, named) + " works it",
			Hint:    "name an actor for " + p.ID,
		})
	}
	return out
}
