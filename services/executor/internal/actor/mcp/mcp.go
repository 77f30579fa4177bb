// Package mcp makes the tools of MCP servers actors: mcp/SERVER/TOOL. It owns the connections to the servers,
// the list of their tools, and the translation of calls and results. What a server sends is untrusted and
// bounded. It must not know how attempts are scheduled or journaled.
package mcp

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Prefix begins the names of all actors of this package.
const Prefix = "mcp/"

// Deps are what Servers work with.
type Deps struct {
	// AllowPrivate are the networks that the actor http may reach although they are not public.
	AllowPrivate   []string
	Version        string
	Logger         *slog.Logger
	TracerProvider trace.TracerProvider
	Propagator     propagation.TextMapPropagator
	// Memory keeps what servers list; nil forgets it with the process.
	Memory Memory
}

// Servers are the configured servers. They are safe for concurrent use.
type Servers struct {
	version    string
	tracers    trace.TracerProvider
	propagator propagation.TextMapPropagator
	byName     map[string]*server
}

// New connects to nothing yet: Run does, or the first call. Close must be called.
func New(cfg Config, d Deps) (*Servers, error) {
	s := &Servers{version: d.Version, tracers: d.TracerProvider, propagator: d.Propagator, byName: map[string]*server{}}
	for name, one := range cfg.Servers {
		sv := &server{name: name, cfg: one.withDefaults(), log: d.Logger, open: s.open, memory: d.Memory, changed: make(chan struct{}, 1), reports: map[string]*report{}}
		sv.turns = turns.Within(turns.Bounds{Key: sv.cfg.Parallel, All: sv.cfg.Parallel})
		if one.URL != "" {
			guard, err := egress.NewGuard(slices.Concat(d.AllowPrivate, one.AllowPrivate))
			if err != nil {
				return nil, fmt.Errorf("mcp.servers.%s: %w", name, err)
			}
			sv.guard, sv.transport = guard, guard.Transport()
		}
		s.byName[name] = sv
	}
	return s, nil
}

// Run keeps all servers connected and their tools listed, until ctx ends. A server that is down is tried
// again, ever more seldom, and is no error.
func (s *Servers) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, sv := range s.byName {
		all.Go(func() { sv.run(ctx) })
	}
	all.Wait()
	return nil
}

// Close ends all connections and the servers that were started. It waits for both.
func (s *Servers) Close() error {
	var all sync.WaitGroup
	for _, sv := range s.byName {
		all.Go(sv.close)
	}
	all.Wait()
	return nil
}

// find is the server that an actor's name stands for, and the tool.
func (s *Servers) find(name string) (sv *server, tool string) {
	rest, ok := strings.CutPrefix(name, Prefix)
	if !ok {
		return nil, ""
	}
	of, tool, _ := strings.Cut(rest, "/")
	if sv = s.byName[of]; sv == nil || !usable(tool) || !sv.cfg.allows(tool) {
		return nil, ""
	}
	return sv, tool
}

// ActorInfo is what is known of a tool. One of a server that never listed its tools is taken on trust, since
// a server that is down must not make graphs faulty. It is UNSAFE unless the configuration says otherwise,
// and its arguments are the server's to judge.
func (s *Servers) ActorInfo(name string) (workgraph.ActorInfo, bool) {
	info := workgraph.ActorInfo{Effect: workgraph.Unsafe, Elsewhere: true, NeverExpands: true}
	sv, called := s.find(name)
	if sv == nil {
		return info, strings.HasPrefix(name, Prefix)
	}
	if e, ok := sv.cfg.Effects[called]; ok {
		info.Effect = e
	}
	if t, _ := sv.tool(called); t != nil {
		info.Effect, info.Description, info.Version, info.Schema = t.effect, t.description, t.version, t.schema
	}
	return info, true
}

// Learn waits for the first list of the server of a tool, or of mcp/SERVER/, until its first connection
// has failed or connect_timeout is over. Nothing is waited for if the server has listed its tools before,
// or is down.
func (s *Servers) Learn(ctx context.Context, name string) {
	rest, is := strings.CutPrefix(name, Prefix)
	of, _, _ := strings.Cut(rest, "/")
	sv := s.byName[of]
	if !is || sv == nil {
		return
	}
	if _, ever, down := sv.listed(); !ever && down == nil {
		_, _ = sv.session(ctx) // what is not known then is taken on trust
	}
}

// Absent reports whether a name stands for a tool that its server does not list, or for one of a server that
// is not configured.
func (s *Servers) Absent(name string) bool {
	sv, called := s.find(name)
	if sv == nil {
		return strings.HasPrefix(name, Prefix)
	}
	t, ever := sv.tool(called)
	return ever && t == nil
}

// Actor calls the tool of that name. One that is absent fails when it is called.
func (s *Servers) Actor(name string) (workgraph.Actor, bool) {
	sv, called := s.find(name)
	if sv == nil {
		return workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonNoTool, "%q is no tool of an MCP server that is configured here", name)
		}), strings.HasPrefix(name, Prefix)
	}
	return caller{s, sv, called}, true
}

// Specs lists the tools of all servers, those of the last list where a server is down.
func (s *Servers) Specs() []actor.Spec {
	var out []actor.Spec
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		sv := s.byName[name]
		tools, _, down := sv.listed()
		unavailable := ""
		if down != nil {
			unavailable = (&unreachable{server: name, why: down}).Error()
		}
		for _, t := range slices.Sorted(maps.Keys(tools)) {
			full := Prefix + name + "/" + t
			out = append(out, actor.Spec{Name: full, Description: tools[t].description, Version: tools[t].version, Effect: tools[t].effect, Elsewhere: true,
				Schema: string(tools[t].schema), Unavailable: unavailable, Actor: caller{s, sv, t}})
		}
		if len(tools) == 0 && down != nil {
			out = append(out, actor.Spec{Name: Prefix + name + "/*", Description: "The tools of an MCP server that has not been reached yet.", Effect: workgraph.Unsafe, Elsewhere: true,
				Unavailable: unavailable})
		}
	}
	return out
}

// Check reaches every server, lists its tools, and says what is wrong, a line for each that fails. Then all
// are closed.
func Check(ctx context.Context, cfg Config, d Deps) ([]string, error) {
	s, err := New(cfg, d)
	if err != nil {
		return nil, err
	}
	faults := make([]string, len(s.byName))
	var all sync.WaitGroup
	for i, name := range slices.Sorted(maps.Keys(s.byName)) {
		all.Go(func() {
			if _, err := s.byName[name].session(ctx); err != nil {
				faults[i] = name + ": " + err.Error()
			}
		})
	}
	all.Wait()
	return slices.DeleteFunc(faults, func(s string) bool { return s == "" }), s.Close()
}
