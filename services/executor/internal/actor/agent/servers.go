package agent

import (
	"context"
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
		if err := d.tooled(server, names); err != nil {
			return err
		}
	}
	if len(servers) > 0 {
		d.complete()
		d.compile(ctx)
	}
	return nil
}

// tooled adds the tools of a server to the actions. One that is an action already stays as that says.
func (d *definition) tooled(server string, names []string) error {
	has := map[string]bool{}
	for _, a := range d.Actions {
		has[a.Actor] = true
	}
	for _, name := range names {
		if has[name] {
			continue
		}
		called := notName.ReplaceAllString(strings.TrimPrefix(name, serverPrefix), "_")
		called = called[:min(len(called), 64)]
		if d.Actions[called] != nil || d.Signals[called] != nil {
			return workgraph.Errorf(workgraph.Permanent, ReasonActionsUnusable, "mcp_servers: two tools of %q would be called %q: name them among the actions", server, called)
		}
		if len(d.Actions) == maxActionNames {
			return workgraph.Errorf(workgraph.Permanent, ReasonActionsUnusable, "mcp_servers: with the tools of %q there are more than %d actions: name those that are needed among the actions, as mcp/%s/TOOL", server, maxActionNames, server)
		}
		if d.Actions == nil {
			d.Actions = map[string]*action{}
		}
		d.Actions[called] = &action{Actor: name}
	}
	return nil
}

// unserved is the error of a server that has no tools: it may come up, unless nobody knows it.
func unserved(ctx context.Context, server string) error {
	probe := serverPrefix + server + "/tool"
	if known, err := actor.DirectoryOf(ctx).Find(ctx, []string{probe}); err == nil && len(known) > 0 {
		return workgraph.Errorf(workgraph.Retryable, ReasonActionsUnusable, "mcp_servers: the server %q has not said yet which tools it has: it is down", server)
	}
	return workgraph.Errorf(workgraph.Permanent, ReasonActionsUnusable, "mcp_servers: there is no MCP server %q with tools: configure it at mcp.servers.%s", server, server)
}
