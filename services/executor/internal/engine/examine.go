package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Examine returns what Start would say about the graph alone, and more. A nil input is one of which nothing
// is known: what a start without input is told besides is a warning then.
func (e *Engine) Examine(ctx context.Context, namespace string, g *workgraph.Graph, in *workgraph.Input) (Examination, error) {
	p, err := e.program(ctx, namespace, g, nil, in)
	if faults, ok := errors.AsType[workgraph.Faults](err); ok {
		out := Examination{Faults: faults}
		if in != nil || len(faults) > workgraph.MaxFaults {
			return out, nil
		}
		_, err = e.program(ctx, namespace, g, nil, &workgraph.Input{})
		all, ok := errors.AsType[workgraph.Faults](err)
		if !ok {
			return out, err
		}
		out.Warnings = workgraph.OnlyWithoutInput(all, faults)
		return out, nil
	}
	if err != nil {
		return Examination{}, err
	}
	leave, err := e.computing.Enter(ctx, namespace)
	if err != nil {
		return Examination{}, err
	}
	defer leave()
	warnings, err := e.warnings(ctx, namespace, p.p, g, in)
	if err != nil {
		return Examination{}, err
	}
	return Examination{Warnings: warnings, Hash: p.hash}, nil
}

// CheckStart returns what Start would say about what is asked for, without regard to what stands against it
// at the moment.
func (e *Engine) CheckStart(ctx context.Context, req StartRequest) error {
	in := req.propagates()
	if _, err := e.program(ctx, req.Namespace, req.Graph, req.Known, &in); err != nil {
		return err
	}
	return e.fits(req)
}

// program compiles within the limits, for a run with this input; a nil one is one of which nothing is known.
// It is the one way in which a graph that a client, an agent or a schedule gives is judged: starts, children,
// forks, schedules and ValidateGraph all come through here. What is not remembered is compiled in a turn to
// compute, which the caller must not have.
func (e *Engine) program(ctx context.Context, namespace string, g *workgraph.Graph, k *Known, in *workgraph.Input) (*program, error) {
	if err := e.withinLimits(g); err != nil {
		return nil, err
	}
	leave := func() {}
	defer func() { leave() }()
	p, err := e.programs.compile(ctx, namespace, g, k, func() error {
		give, err := e.computing.Enter(ctx, namespace)
		if err == nil {
			leave = give
		}
		return err
	})
	list, faulty := errors.AsType[workgraph.Faults](err)
	switch {
	case faulty && in != nil: // all faults at once, those that only this input has among them
		known, err := e.programs.knownActors(ctx, namespace, actorsOf(g))
		if err != nil {
			return nil, err
		}
		if list, err = workgraph.ValidateFor(ctx, g, known, in); err != nil {
			return nil, err
		}
	case faulty:
	case err != nil:
		return nil, err
	default:
		if list, err = p.p.Missing(ctx, in); err != nil {
			return nil, err
		}
	}
	if len(list) > 0 {
		return nil, e.hints(ctx, namespace, g, list)
	}
	return p, e.graphFits(p.body)
}

// withinLimits counts nodes and edges.
func (e *Engine) withinLimits(g *workgraph.Graph) error {
	var faults workgraph.Faults
	tooMany := func(what string, n, limit int) {
		if n > limit {
			faults = append(faults, workgraph.Fault{Code: workgraph.CodeTooLarge, Field: what,
				Message: fmt.Sprintf("the graph has %d %s, the limit is %d", n, what, limit), Hint: "split the work into several runs"})
		}
	}
	tooMany("nodes", len(g.Nodes), e.cfg.MaxNodes)
	tooMany("edges", len(g.Edges), e.cfg.MaxEdges)
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// graphFits weighs a graph's stored form.
func (e *Engine) graphFits(body []byte) error {
	if len(body) <= e.cfg.MaxGraphBytes {
		return nil
	}
	return workgraph.Faults{{Code: workgraph.CodeTooLarge, Message: fmt.Sprintf("the graph has %d bytes, the limit is %d", len(body), e.cfg.MaxGraphBytes),
		Hint: "keep large arguments outside and pass a reference"}}
}

// maxHints is for how many unknown actors it is found out which ones may have been meant.
const maxHints = 10

// maxNearSteps bounds the comparing of names for all hints of one graph: about 50 ms. Names that are left
// then are not suggested.
const maxNearSteps = 20_000_000

// hints tells for every unknown actor which one may have been meant.
func (e *Engine) hints(ctx context.Context, namespace string, g *workgraph.Graph, faults workgraph.Faults) workgraph.Faults {
	if !slices.ContainsFunc(faults, func(f workgraph.Fault) bool { return f.Code == workgraph.CodeUnknownActor }) {
		return faults
	}
	names, err := e.actors.Names(ctx, namespace)
	if err != nil {
		return faults // the faults stand without hints
	}
	asked := make(map[string]string, len(g.Nodes))
	for i := range g.Nodes {
		asked[g.Nodes[i].ID] = g.Nodes[i].Actor
	}
	told, steps := 0, maxNearSteps
	for i := range faults {
		if faults[i].Code != workgraph.CodeUnknownActor {
			continue
		}
		if told++; told > maxHints {
			break
		}
		if text := hint(asked[faults[i].Node], names, &steps); text != "" {
			faults[i].Hint = text
		}
	}
	return faults
}

// UnknownActor reports whether no actor of the namespace has the name, and which ones may have been meant.
func (e *Engine) UnknownActor(ctx context.Context, namespace, name string) (unknown bool, near []string, err error) {
	_, _, known, err := e.actors.Actor(ctx, namespace, name)
	if err != nil || known {
		return false, nil, err
	}
	names, err := e.actors.Names(ctx, namespace)
	steps := maxNearSteps
	return err == nil, nearest(name, names, &steps), err
}

// hint tells which of the actors may have been meant by a name, or what there is; it is empty when there is
// none.
func hint(name string, names []string, steps *int) string {
	if near := nearest(name, names, steps); len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "?"
	}
	if len(names) > 0 {
		return "actors here: " + strings.Join(names[:min(len(names), 20)], ", ") + "; those of a worker are known once it has connected"
	}
	return ""
}

// oversize is the size of the first value that is over the limit, or 0.
func (e *Engine) oversize(args []json.RawMessage, named map[string]json.RawMessage) int {
	for _, v := range args {
		if len(v) > e.cfg.MaxPayload {
			return len(v)
		}
	}
	for _, v := range named {
		if len(v) > e.cfg.MaxPayload {
			return len(v)
		}
	}
	return 0
}

// fits checks the request's own values against the limit and names every one that is over it.
func (e *Engine) fits(req StartRequest) error {
	var fault *errs.Error
	n := 0
	check := func(size int, field func() string) {
		if size <= e.cfg.MaxPayload {
			return
		}
		if n++; fault == nil {
			fault = errs.New(errs.InvalidArgument, ReasonPayloadTooLarge, "a value of the request is over the limit of %d bytes", e.cfg.MaxPayload).
				Hint("keep large values outside and pass a reference")
		}
		fault = fault.Violate(field(), ReasonPayloadTooLarge, fmt.Sprintf("%d bytes, the limit is %d", size, e.cfg.MaxPayload))
	}
	for i, v := range req.Input.Args {
		check(len(v), func() string { return fmt.Sprintf("args[%d]", i) })
	}
	for k, v := range req.Input.Named {
		check(len(v), func() string { return "named." + k })
	}
	check(len(req.Context), func() string { return "context" })
	check(len(req.Attachments), func() string { return "attachments" })
	if !req.Known.fits() {
		before := n
		for i := range req.Graph.Nodes {
			node := &req.Graph.Nodes[i]
			for j, v := range node.Args {
				check(len(v), func() string { return fmt.Sprintf("graph.nodes[%s].args[%d]", node.ID, j) })
			}
			for k, v := range node.Named {
				check(len(v), func() string { return fmt.Sprintf("graph.nodes[%s].named.%s", node.ID, k) })
			}
		}
		if n == before {
			req.Known.setFits()
		}
	}
	if fault != nil {
		return fault
	}
	// Those of a fork were accepted with the run that it is one of.
	if req.ForkedFrom == "" {
		if err := webhook.Check(req.Webhooks, e.egress); err != nil {
			return err
		}
	}
	return budgetFits(req.Budget)
}
