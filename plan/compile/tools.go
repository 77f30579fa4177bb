package compile

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/workgraph"
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
	return actor == cmp.Or(o.DefaultActor, DefaultActor) || o.Known != nil && o.Known(actor)
}

// byName reports whether the actor of a problem gets its arguments by name: it is the tool of the
// problem, and was named as such. A plan that names the default actor as a tool states arguments that are
// its own.
func (o *Options) byName(p plan.Problem, actor string, named map[string]bool) bool {
	return p.Tool == actor && (named[actor] || o.Known != nil && o.Known(actor))
}

// EdgeArg reports whether an argument of a problem is what the text says of an edge.
func EdgeArg(name string) bool { return strings.Contains(name, " -> ") }

// byNames gives a problem's arguments to its node by name: values go into named, and values that use results
// become bindings. Those that the options give to every node stay. args and refs are those that are left:
// arguments without a name or that are code, and uses elsewhere.
func (o *Options) byNames(ctx context.Context, p plan.Problem, all []Reference, named map[string]json.RawMessage) (args []plan.Arg, refs []Reference, bind map[string]workgraph.Binding) {
	bound := map[string]bool{}
	for _, a := range p.Args {
		if a.Name == "" || EdgeArg(a.Name) {
			args = append(args, a)
			continue
		}
		if _, given := o.Named[a.Name]; given {
			continue
		}
		// the last of two with one name counts
		delete(bind, a.Name)
		delete(named, a.Name)
		b, uses, ok := bindingOf(ctx, a, all)
		switch {
		case !uses:
			named[a.Name] = a.JSON()
		case !ok:
			args = append(args, a)
			continue
		case bind == nil:
			bind = map[string]workgraph.Binding{a.Name: b}
		default:
			bind[a.Name] = b
		}
		bound[a.Name] = true
	}
	for _, r := range all {
		if r.Argument == "" || !bound[r.Argument] {
			refs = append(refs, r)
		}
	}
	return args, refs, bind
}

// bindingOf is the binding of an argument. uses says that it uses a result, and ok that it can be bound.
func bindingOf(ctx context.Context, a plan.Arg, all []Reference) (b workgraph.Binding, uses, ok bool) {
	b.Value = a.JSON()
	var text string
	_ = json.Unmarshal(b.Value, &text) // it stays empty for other values
	for _, r := range all {
		code := r.Text != "" && isWord(r.Text[0])
		if r.Argument != a.Name && (r.Argument != "" || code || r.Text == "" || !strings.Contains(text, r.Text)) {
			continue
		}
		uses = true
		u := workgraph.ResultUse{Mark: r.Text, Node: r.Node, Field: r.Field}
		if code { // the value is an expression, of which only a path is understood
			rest, found := strings.CutPrefix(text, r.Text)
			if !found || rest != "" && (r.Field != "" || !strings.ContainsAny(rest[:1], ".[") || strings.ContainsAny(rest, "(){}+-*/%, ")) {
				return b, true, false
			}
			u.Mark = text
			u.Field = cmp.Or(r.Field, strings.TrimPrefix(rest, "."))
		}
		u.OrWhole = meansWhole(u.Field)
		if !slices.Contains(b.Uses, u) {
			b.Uses = append(b.Uses, u)
		}
	}
	return b, uses, uses && b.Check(ctx) == nil
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= utf8.RuneSelf
}

// meansWhole reports whether a field has one of the names by which texts mean a result itself.
func meansWhole(field string) bool {
	switch first, _, _ := strings.Cut(field, "."); first {
	case "output", "result", "value", "answer", "response", "content", "text":
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
