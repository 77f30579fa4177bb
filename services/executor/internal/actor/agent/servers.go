package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// argServers is the argument with the MCP servers whose tools an agent has.
const argServers = "mcp_servers"

// serverPrefix begins the names of the actors that are tools of MCP servers.
const serverPrefix = "mcp/"

// serverName is what names of servers look like, and notName what cannot be in the name of an action.
var (
	serverName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	notName    = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
)

// checkServers reports a name that no server has.
func (d *definition) checkServers() error {
	if len(d.Servers) > maxActionNames {
		return badArgument(argServers, "mcp_servers: there are %d, the limit is %d", len(d.Servers), maxActionNames)
	}
	for _, name := range d.Servers {
		if !serverName.MatchString(name) {
			return badArgument(argServers, "mcp_servers: %.80q is no name of a server: use up to 64 letters, digits, _, . and -", name)
		}
	}
	return nil
}

// serve makes actions of the tools that the servers have now. The run keeps these: what a server lists later
// is for later calls of the agent.
func (d *definition) serve(ctx context.Context) error {
	servers := d.Servers
	d.Servers = nil
	var out leftOut
	for _, server := range servers {
		prefix := serverPrefix + server + "/"
		names, err := actor.DirectoryOf(ctx).Below(ctx, prefix)
		if err != nil {
			return workgraph.Errorf(workgraph.Retryable, ReasonActionsUnusable, "mcp_servers: the tools of %q cannot be looked up: %v", server, err)
		}
		// A server that is down is listed as mcp/SERVER/*.
		if names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "/*") }); len(names) == 0 {
			return unserved(ctx, server)
		}
		out.add(d.tooled(names))
	}
	if len(servers) > 0 {
		d.complete()
		d.compile(ctx)
	}
	out.tell(ctx)
	return nil
}

// tooled adds the tools of a server to the actions, in the order of their names. One that is an action
// already stays as that says. It returns those for which there is no room: a server that lists more tools
// one day must not make the agent fail.
func (d *definition) tooled(names []string) (out []string) {
	has := map[string]bool{}
	for _, a := range d.Actions {
		has[a.Actor] = true
	}
	names = slices.DeleteFunc(slices.Sorted(slices.Values(names)), func(name string) bool { return has[name] })
	alike := map[string]int{}
	for _, name := range names {
		alike[calledBy(name)]++
	}
	for _, name := range names {
		called := calledBy(name)
		if alike[called] > 1 || d.Actions[called] != nil || d.Signals[called] != nil {
			called = apart(called, name)
		}
		if len(d.Actions)+len(d.Signals) >= maxActionNames || d.Actions[called] != nil || d.Signals[called] != nil {
			out = append(out, name)
			continue
		}
		if d.Actions == nil {
			d.Actions = map[string]*action{}
		}
		d.Actions[called] = &action{Actor: name}
	}
	return out
}

// maxActionName bounds the name of an action, in bytes.
const maxActionName = 64

// calledBy is what a model calls a tool by: its name, as far as names of actions go.
func calledBy(name string) string {
	called := notName.ReplaceAllString(strings.TrimPrefix(name, serverPrefix), "_")
	return called[:min(len(called), maxActionName)]
}

// apart is a name that tells a tool from others that would be called alike. It depends on the tool alone, so
// that it stays the same whichever others there are.
func apart(called, name string) string {
	sum := sha256.Sum256([]byte(name))
	end := "_" + hex.EncodeToString(sum[:4])
	return called[:min(len(called), maxActionName-len(end))] + end
}

// leftOut are the tools for which an agent has no room.
type leftOut struct{ names []string }

func (o *leftOut) add(names []string) { o.names = append(o.names, names...) }

// maxLeftOut bounds how many of them are told by name.
const maxLeftOut = 20

// tell reports them to those who watch the run.
func (o *leftOut) tell(ctx context.Context) {
	if len(o.names) == 0 {
		return
	}
	raw, err := actor.Encode(map[string]any{"tools_left_out": o.names[:min(len(o.names), maxLeftOut)], "count": len(o.names),
		"hint": "an agent has 64 actions: name those that are needed among the actions, as mcp/SERVER/TOOL"})
	if err == nil { // texts and a number always have a form
		actor.ReporterOf(ctx).Progress(raw)
	}
}

// unserved is the error of a server that has no tools: it may come up, unless nobody knows it.
func unserved(ctx context.Context, server string) error {
	probe := serverPrefix + server + "/tool"
	if known, err := actor.DirectoryOf(ctx).Find(ctx, []string{probe}); err == nil && len(known) > 0 {
		return workgraph.Errorf(workgraph.Retryable, ReasonActionsUnusable, "mcp_servers: the server %q has not said yet which tools it has: it is down", server)
	}
	return workgraph.Errorf(workgraph.Permanent, ReasonActionsUnusable, "mcp_servers: there is no MCP server %q with tools: configure it at mcp.servers.%s", server, server)
}
