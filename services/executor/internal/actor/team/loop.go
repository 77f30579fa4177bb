package team

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The nodes of the loop. Each member has a node of its own besides, see speakNode.
const (
	nodeBegin  = "begin"
	nodeTurn   = "turn"
	nodeChoose = actor.TeamChooses
	nodeHear   = "hear"
)

// speakNode is the node of a member.
func speakNode(name string) string { return actor.TeamMember(name) }

// stateAt is the key of the run's state that says where the team stands.
const stateAt = "at"

// whenAsked holds for the failure of a member that the user ended by asking for something else.
const whenAsked = "result.reason == '" + workgraph.ReasonAnotherRequest + "'"

const passNothing = "{'args': [], 'named': {}}"

// graph is the graph of the team's run. A turn is one visit of turn, those of the members who speak,
// and one of hear:
//
//	begin --> turn --> speak.a --> hear
//	            | `--> speak.b ----^ |
//	            `----> choose -------+ BACK to turn
//
// It depends on the team alone, so that all its runs share a program.
func graph(t *team.Team, own json.RawMessage) (*workgraph.Graph, error) {
	g := &workgraph.Graph{Name: actorTeam, State: map[string]workgraph.StateKey{stateAt: {}}}
	nothing := workgraph.Merge(passNothing)
	add := func(n workgraph.Node) {
		if n.MaxVisits == 0 {
			n.MaxVisits = workgraph.Unlimited
		}
		g.Nodes = append(g.Nodes, n)
	}
	edge := func(from, to string, kind workgraph.EdgeKind, pass workgraph.PassDown) {
		g.Edges = append(g.Edges, workgraph.Edge{From: from, To: to, Kind: kind, PassDown: pass})
	}
	named := map[string]json.RawMessage{argTeam: own}
	add(workgraph.Node{ID: nodeBegin, Actor: actorBegin, Named: named, MaxVisits: 1})
	add(workgraph.Node{ID: nodeTurn, Actor: actorTurn, Named: named})
	edge(nodeBegin, nodeTurn, "", nothing)
	speak := func(id, name string, n workgraph.Node, tells bool) {
		add(n)
		edge(nodeTurn, id, "", workgraph.Merge("{'args': [], 'named': result['"+name+"']}"))
		edge(id, nodeHear, "", nothing)
		if tells {
			edge(id, nodeHear, workgraph.ErrorEdge, nothing)
		} else {
			g.Edges = append(g.Edges, workgraph.Edge{From: id, To: nodeHear, Kind: workgraph.ErrorEdge, When: whenAsked, PassDown: nothing})
		}
	}
	for i := range t.Members {
		m := &t.Members[i]
		n, err := memberNode(m)
		if err != nil {
			return nil, err
		}
		speak(n.ID, m.Name, n, m.Tells)
	}
	if ch := t.Choose; ch != nil {
		if strings.HasPrefix(ch.Actor, loopPrefix) || strings.HasPrefix(ch.Actor, "loop/") {
			return nil, actor.BadArguments("choose: %s is for the loop of an agent or a team", ch.Actor)
		}
		n := workgraph.Node{ID: nodeChoose, Name: "choose the next speaker", Actor: ch.Actor, Named: ch.Named, OnError: workgraph.OnError{Action: workgraph.Route}}
		speak(nodeChoose, nodeChoose, n, false)
	}
	add(workgraph.Node{ID: nodeHear, Kind: workgraph.SummarizerKind, Actor: actorHear, Named: named})
	g.Edges = append(g.Edges, workgraph.Edge{From: nodeHear, To: nodeTurn, Kind: workgraph.BackEdge, When: "true", PassDown: nothing})
	return g, nil
}

// memberNode is the node of a member, with the arguments that it always has.
func memberNode(m *team.Member) (workgraph.Node, error) {
	if strings.HasPrefix(m.Actor, loopPrefix) || strings.HasPrefix(m.Actor, "loop/") {
		return workgraph.Node{}, actor.BadArguments("members.%s: %s is for the loop of an agent or a team and no member", m.Name, m.Actor)
	}
	if isAgent := m.Actor == actorAgent || strings.HasPrefix(m.Actor, actorAgent+"/"); isAgent != (m.Kind == team.Agent) {
		return workgraph.Node{}, actor.BadArguments("members.%s: an agent has the kind AGENT, and nobody else has", m.Name)
	}
	if m.Cache != nil && (m.Kind != team.Workflow || m.Keeps) {
		return workgraph.Node{}, actor.BadArguments("members.%s: only a workflow that goes on with no conversation has a cache", m.Name)
	}
	n := workgraph.Node{ID: speakNode(m.Name), Name: m.Name, Actor: m.Actor, Named: maps.Clone(m.Named), Cache: m.Cache}
	if n.Named == nil {
		n.Named = map[string]json.RawMessage{}
	}
	n.OnError = workgraph.OnError{Action: workgraph.Route}
	if n.Cache != nil && len(m.Told) > 0 { // results are kept by the task, and not by what was said before
		kept := *n.Cache
		kept.Key = fmt.Sprintf("nodes[%q].result[%q].input.named.task", nodeTurn, m.Name)
		n.Cache = &kept
	}
	if _, held := m.Named["graph"]; held && m.Kind == team.Workflow && m.Actor == actorSpawn {
		n.Actor = actorPart
	}
	if m.Kind != team.Agent {
		return n, nil
	}
	n.Kind = workgraph.AgentKind
	n.Named["upstream"], n.Named["as_message"] = json.RawMessage("false"), json.RawMessage("true")
	if m.Actor == actorAgent {
		if _, ok := n.Named["form"]; !ok {
			n.Named["form"] = json.RawMessage(`"tools"`)
		}
		if _, ok := n.Named["actions"]; !ok {
			n.Named["actions"] = json.RawMessage("{}")
		}
	}
	if len(m.Signals) > 0 {
		if _, ok := n.Named["signals"]; !ok {
			return n, actor.BadArguments("the member %q says what its signals mean, and its agent has none", m.Name)
		}
	}
	return n, nil
}
