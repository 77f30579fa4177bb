package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
)

type runsAmendCmd struct {
	ID        string `arg:"" help:"The run."`
	File      string `arg:"" help:"A change as JSON (removeNodes, removeEdges, putNodes, addEdges), or the whole new graph; - reads standard input."`
	DryRun    bool   `help:"Show the difference only; change nothing."`
	Yes       bool   `help:"Do not ask." short:"y"`
	By        string `help:"Name of the person who changes it, for the history." placeholder:"NAME"`
	RequestID string `help:"Make the command repeatable: the same id changes once." placeholder:"ID"`
}

// Help gives an example.
func (runsAmendCmd) Help() string {
	return `Shows the difference first and asks for confirmation. Ended visits stay as they are. Visits under way are canceled if their node changes.

    epigraph runs graph run_01… --json > g.json   # change nodes that have not run
    epigraph runs amend run_01… g.json
    echo '{"putNodes": [{"id": "B", "actor": "template", "named": {"text": "other"}}]}' | epigraph runs amend run_01… - --yes`
}

// Run amends the graph of a run.
func (c *runsAmendCmd) Run(e *env) error {
	text, err := e.readText(c.File)
	if err != nil {
		return err
	}
	s, err := e.connect()
	if err != nil {
		return err
	}
	defer s.close()
	req, diff, err := c.plan(e, s, text)
	if m, ok := errors.AsType[*misread](err); ok && !e.json {
		fmt.Fprint(e.io.Err, view.Diagnostics(e.io.errStyle(), sourceName(c.File), text, []*planv1.Diagnostic{m.at}))
		return exit(exitFailed)
	}
	if err != nil {
		return err
	}
	c.warn(e, s, text, req.GetPatch())
	if c.DryRun {
		return e.print(diff, func() string { return changeText(e, diff.GetDiff()) })
	}
	if !e.json {
		if err := e.say(changeText(e, diff.GetDiff())); err != nil {
			return err
		}
	}
	if c.File == "-" && !c.Yes {
		return errs.New(errs.FailedPrecondition, "CONFIRMATION_NEEDED", "the change came from standard input, so nobody can be asked there").Hint("say --yes, or give a file")
	}
	ok, err := e.confirm(c.Yes, "change the run?")
	if err != nil || !ok {
		return err
	}
	req.DryRun = false
	ctx, cancel := context.WithTimeout(e.ctx, e.client.Timeout)
	defer cancel()
	r, err := s.executor.AmendRun(ctx, req)
	if err != nil {
		return err
	}
	return e.print(r, func() string {
		return fmt.Sprintf("changed; %s is %s, graph revision %d\n", r.GetRun().GetId(), view.Word(r.GetRun().GetState().String(), "RUN_STATE_"), r.GetRun().GetGraphRevision())
	})
}

// warn shows what may be wrong with the graph as it is going to be.
func (c *runsAmendCmd) warn(e *env, s *services, text string, change *executorv1.GraphPatch) {
	if e.json {
		return
	}
	ctx, cancel := context.WithTimeout(e.ctx, e.client.Timeout)
	defer cancel()
	run, err := s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: c.ID})
	if err != nil {
		return
	}
	old, err := s.executor.GetRunGraph(ctx, &executorv1.GetRunGraphRequest{RunId: c.ID})
	if err != nil {
		return
	}
	g := changed(old.GetGraph(), change)
	(&runCmd{File: c.File}).warn(ctx, e, s, text, g, &executorv1.RunInput{Args: run.GetArgs(), Named: run.GetNamed()})
}

// changed is what the change makes of the graph: edges of a node that goes, go with it.
func changed(g *graphv1.Graph, change *executorv1.GraphPatch) *graphv1.Graph {
	out := proto.CloneOf(g)
	out.Nodes = slices.DeleteFunc(out.Nodes, func(n *graphv1.Node) bool { return slices.Contains(change.GetRemoveNodes(), n.GetId()) })
	for _, n := range change.GetPutNodes() {
		at := slices.IndexFunc(out.Nodes, func(old *graphv1.Node) bool { return old.GetId() == n.GetId() })
		if at < 0 {
			out.Nodes = append(out.Nodes, n)
		} else {
			out.Nodes[at] = n
		}
	}
	out.Edges = slices.DeleteFunc(out.Edges, func(x *graphv1.Edge) bool {
		goes := slices.ContainsFunc(change.GetRemoveEdges(), func(gone *graphv1.Edge) bool {
			return gone.GetFrom() == x.GetFrom() && gone.GetTo() == x.GetTo() && gone.GetKind() == x.GetKind()
		})
		return goes || slices.Contains(change.GetRemoveNodes(), x.GetFrom()) || slices.Contains(change.GetRemoveNodes(), x.GetTo())
	})
	out.Edges = append(out.Edges, change.GetAddEdges()...)
	return out
}

// plan has the server work out the difference.
func (c *runsAmendCmd) plan(e *env, s *services, text string) (*executorv1.AmendRunRequest, *executorv1.AmendRunResponse, error) {
	ctx, cancel := context.WithTimeout(e.ctx, e.client.Timeout)
	defer cancel()
	run, err := s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: c.ID})
	if err != nil {
		return nil, nil, err
	}
	req := &executorv1.AmendRunRequest{RunId: c.ID, ExpectedRevision: run.GetGraphRevision(), DryRun: true, By: c.By, RequestId: c.RequestID}
	raw, err := findGraph(text)
	if err != nil {
		return nil, nil, err
	}
	if raw != nil {
		g, err := graphpb.Read(raw)
		if err != nil {
			return nil, nil, err
		}
		old, err := s.executor.GetRunGraph(ctx, &executorv1.GetRunGraphRequest{RunId: c.ID})
		if err != nil {
			return nil, nil, err
		}
		req.Patch = patchOf(old.GetGraph(), g)
	} else if req.Patch, err = readPatch(text); err != nil {
		return nil, nil, err
	}
	diff, err := s.executor.AmendRun(ctx, req)
	return req, diff, err
}

// readPatch reads a change as the REST API writes it.
func readPatch(text string) (*executorv1.GraphPatch, error) {
	p := &executorv1.GraphPatch{}
	var doc any
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		offset, what, hint := jsonFault(text, err)
		if hint == "" {
			hint = `write {"removeNodes": [], "removeEdges": [], "putNodes": [], "addEdges": []}, or the whole graph`
		}
		return nil, misreadAt("PATCH_INVALID", text, offset, "the change is not JSON: "+what, hint)
	}
	faults, err := graphpb.ReadMessage("patch", bytes.TrimSpace([]byte(text)), p)
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, "PATCH_INVALID", "the change cannot be read: %v", err)
	}
	if len(faults) == 0 {
		return p, nil
	}
	x := errs.New(errs.InvalidArgument, "PATCH_INVALID", "the change cannot be read").Hint("epigraph.executor.v1.GraphPatch in /openapi.json names every field")
	x.Violations = faults
	return nil, x
}

// patchOf is the change that makes one graph of another.
func patchOf(from, to *graphv1.Graph) *executorv1.GraphPatch {
	p := &executorv1.GraphPatch{}
	had, has := map[string]*graphv1.Node{}, map[string]bool{}
	for _, n := range from.GetNodes() {
		had[n.GetId()] = n
	}
	for _, n := range to.GetNodes() {
		has[n.GetId()] = true
		if old := had[n.GetId()]; old == nil || !proto.Equal(old, n) {
			p.PutNodes = append(p.PutNodes, n)
		}
	}
	for _, n := range from.GetNodes() {
		if !has[n.GetId()] {
			p.RemoveNodes = append(p.RemoveNodes, n.GetId())
		}
	}
	missing := func(in []*graphv1.Edge, e *graphv1.Edge) bool {
		for _, x := range in {
			if proto.Equal(x, e) {
				return false
			}
		}
		return true
	}
	for _, e := range from.GetEdges() {
		if has[e.GetFrom()] && has[e.GetTo()] && missing(to.GetEdges(), e) {
			p.RemoveEdges = append(p.RemoveEdges, e)
		}
	}
	for _, e := range to.GetEdges() {
		if missing(from.GetEdges(), e) {
			p.AddEdges = append(p.AddEdges, e)
		}
	}
	return p
}

func changeText(e *env, d *executorv1.GraphDiff) string {
	var b strings.Builder
	s := e.io.style()
	line := func(mark, what string) { fmt.Fprintf(&b, "  %s %s\n", mark, view.OneLine(what, 160)) }
	for _, id := range d.GetAddedNodes() {
		line(s.Bold("+"), id)
	}
	for _, id := range d.GetRemovedNodes() {
		line(s.Bold("-"), id)
	}
	for _, n := range d.GetChangedNodes() {
		line(s.Bold("~"), n.GetNodeId()+": "+strings.Join(n.GetFields(), ", "))
	}
	for _, x := range d.GetAddedEdges() {
		line(s.Bold("+"), x)
	}
	for _, x := range d.GetRemovedEdges() {
		line(s.Bold("-"), x)
	}
	for _, v := range d.GetCanceled() {
		line("⊗", refText(v)+" is under way and is canceled")
	}
	if b.Len() == 0 {
		return "nothing changes\n"
	}
	return "the graph changes:\n" + b.String()
}

// refText reads node, node@visit or node@visit[item].
func refText(v *executorv1.VisitRef) string {
	out := view.OneLine(v.GetNodeId(), 60)
	if v.GetVisit() > 1 {
		out += fmt.Sprintf("@%d", v.GetVisit())
	}
	if v.GetItem() > 0 {
		out += fmt.Sprintf("[%d]", v.GetItem())
	}
	return out
}
