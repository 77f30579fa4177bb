// Package a2a makes remote agents that speak the A2A protocol actors: a2a/AGENT. It owns their cards,
// the run that follows a task of a remote agent to its end, and the translation of messages and
// artifacts. What an agent sends is untrusted and bounded. It must not know how attempts are scheduled
// or journaled.
package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/near"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Prefix begins the names of all actors of this package that graphs name.
const Prefix = "a2a/"

// Reasons of failed calls.
const (
	// ReasonDown is that of an agent that cannot be reached.
	ReasonDown = "A2A_AGENT_DOWN"
	// ReasonNoAgent is that of an agent that is not configured.
	ReasonNoAgent = "A2A_AGENT_UNKNOWN"
	// ReasonProtocol is that of an agent that refuses a request, or answers with what cannot be used.
	ReasonProtocol = "A2A_ERROR"
	// ReasonAuth is that of an agent that asks for other credentials.
	ReasonAuth = "A2A_AUTH_REQUIRED"
	// ReasonFailed, ReasonRejected and ReasonCanceled are those of tasks that the agent ended so.
	ReasonFailed   = "A2A_TASK_FAILED"
	ReasonRejected = "A2A_TASK_REJECTED"
	ReasonCanceled = "A2A_TASK_CANCELED"
	// ReasonLost is that of a task that the agent does not know any more.
	ReasonLost = "A2A_TASK_LOST"
	// ReasonRequestSize is that of a message beyond its bound.
	ReasonRequestSize = "REQUEST_TOO_LARGE"
)

// Memory keeps the cards of agents, so that an executor that starts while an agent is down knows what
// it does. It is safe for concurrent use.
type Memory interface {
	// KeptTools returns what was kept under a name last, nil if nothing.
	KeptTools(ctx context.Context, name string) ([]byte, error)
	// KeepTools keeps a value in place of the last one.
	KeepTools(ctx context.Context, name string, value []byte) error
}

// Deps are what Agents work with.
type Deps struct {
	// AllowPrivate are the networks that the actor http may reach although they are not public.
	AllowPrivate   []string
	Logger         *slog.Logger
	TracerProvider trace.TracerProvider
	Propagator     propagation.TextMapPropagator
	// Memory keeps cards; nil forgets them with the process.
	Memory Memory
}

// Agents are the configured agents. They are safe for concurrent use.
type Agents struct {
	log        *slog.Logger
	tracers    trace.TracerProvider
	propagator propagation.TextMapPropagator
	byName     map[string]*agent

	mu     sync.Mutex
	closed bool
	// behind are the cancels under way. They end by themselves.
	behind sync.WaitGroup
}

// New fetches no card yet: Run does, or the first call. Close must be called.
func New(cfg Config, d Deps) (*Agents, error) {
	s := &Agents{log: d.Logger, tracers: d.TracerProvider, propagator: d.Propagator, byName: map[string]*agent{}}
	for name, one := range cfg.Agents {
		guard, err := egress.NewGuard(slices.Concat(d.AllowPrivate, one.AllowPrivate))
		if err != nil {
			return nil, fmt.Errorf("a2a.agents.%s: %w", name, err)
		}
		s.byName[name] = newAgent(name, one.withDefaults(), guard, d)
	}
	return s, nil
}

// Run keeps the cards fresh until ctx ends. An agent that is down is tried again, ever more seldom, and
// is no error.
func (s *Agents) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, ag := range s.byName {
		all.Go(func() { ag.run(ctx) })
	}
	all.Wait()
	return nil
}

// Close waits for cancels that are under way, and closes connections.
func (s *Agents) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.behind.Wait()
	for _, ag := range s.byName {
		ag.transport.CloseIdleConnections()
	}
	return nil
}

func (s *Agents) find(name string) *agent {
	of, ok := strings.CutPrefix(name, Prefix)
	if !ok {
		return nil
	}
	return s.byName[of]
}

// schema is that of the arguments of every agent.
const schema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["message"],
  "properties": {
    "message": {"type": ["string", "array"], "minLength": 1, "minItems": 1, "maxItems": 100, "description": "What the agent is told: a text, or a list of parts, each {text}, {data}, {url} or {raw} (base64) with filename and media_type where they help.",
      "items": {"type": "object"}},
    "data": {"description": "Structured data that goes with the message, as a part of its own."},
    "context": {"type": "string", "maxLength": 300, "description": "The conversation to go on with, a name of your choice. Without it calls of one thread are one conversation, and every other call is one of its own."},
    "timeout": {"type": "string", "description": "How long the task may take at most, like 10m; that of the configuration when absent."}
  }
}`

func (s *Agents) spec(ag *agent) actor.Spec {
	card, down := ag.known()
	out := actor.Spec{Name: Prefix + ag.name, Description: "A remote agent whose card has not been read yet.", Effect: workgraph.Idempotent, SeesPlace: true, Elsewhere: true, Schema: schema,
		WaitsFor: []string{"timeout"}, MakesInternal: true, Actor: caller{ag},
		Uncached: func(*workgraph.Node) string { return "each call sends a message" }}
	if card != nil {
		out.Description, out.Version = card.description, card.version
	}
	if down != nil {
		out.Unavailable = down.Error()
	}
	return out
}

// ActorInfo is what is known of an agent. The call itself only asks for the run that sends the message,
// so it is IDEMPOTENT; the message has the effect of the configuration.
func (s *Agents) ActorInfo(name string) (workgraph.ActorInfo, bool) {
	ag := s.find(name)
	if ag == nil {
		return workgraph.ActorInfo{Effect: workgraph.Idempotent, Elsewhere: true, NeverExpands: true}, strings.HasPrefix(name, Prefix)
	}
	o := s.spec(ag)
	return workgraph.ActorInfo{Effect: o.Effect, SeesPlace: true, Elsewhere: true, Description: o.Description, Version: o.Version, Schema: json.RawMessage(o.Schema),
		NeverExpands: true, WaitsFor: o.WaitsFor, Uncached: o.Uncached, MakesInternal: true}, true
}

// Learn waits for the first card of an agent, until the first attempt has failed or its timeout is
// over.
func (s *Agents) Learn(ctx context.Context, name string) {
	if ag := s.find(name); ag != nil {
		if card, down := ag.known(); card == nil && down == nil {
			_, _ = ag.current(ctx) // what is not known then is taken on trust
		}
	}
}

// Absent reports whether a name stands for an agent that is not configured.
func (s *Agents) Absent(name string) bool {
	return strings.HasPrefix(name, Prefix) && s.find(name) == nil
}

// Actor calls the agent of that name. One that is absent fails when it is called.
func (s *Agents) Actor(name string) (workgraph.Actor, bool) {
	if ag := s.find(name); ag != nil {
		return caller{ag}, true
	}
	return workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
		return workgraph.Outcome{}, s.unknown(strings.TrimPrefix(name, Prefix))
	}), strings.HasPrefix(name, Prefix)
}

// unknown is the error of an agent that is not configured.
func (s *Agents) unknown(name string) error {
	hint, best := "", len(name)/3+2
	for known := range s.byName {
		if d := near.Distance(name, known); d < best {
			best, hint = d, fmt.Sprintf("; did you mean %q?", Prefix+known)
		}
	}
	return workgraph.Errorf(workgraph.Permanent, ReasonNoAgent, "%q is no remote agent that is configured here: executor.actors.a2a.agents%s", name, hint)
}

// Specs lists all agents by name.
func (s *Agents) Specs() []actor.Spec {
	var out []actor.Spec
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		out = append(out, s.spec(s.byName[name]))
	}
	return out
}

// Check fetches every card once, and returns a line for each that fails.
func Check(ctx context.Context, cfg Config, d Deps) ([]string, error) {
	s, err := New(cfg, d)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(s.byName))
	faults := make([]string, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			if _, err := s.byName[name].current(ctx); err != nil {
				faults[i] = name + ": " + err.Error()
			}
		})
	}
	all.Wait()
	return slices.DeleteFunc(faults, func(s string) bool { return s == "" }), s.Close()
}

// cancelWithin is how long an agent may take to cancel a task.
const cancelWithin = 20 * time.Second

// Unfinished hears that a run ended otherwise than completed, with its state. If it is one that this
// package asked for, the agent is asked to cancel the task, which may still go on. Unfinished does not
// wait.
func (s *Agents) Unfinished(p *workgraph.Program, state map[string]json.RawMessage) {
	// Only a run that this package asked for may have a node of an internal actor.
	if n, ok := p.Node(nodeFollow); !ok || n.Actor != actorFollow {
		return
	}
	var at position
	if json.Unmarshal(state[statePosition], &at) != nil || at.Task == "" {
		return
	}
	ag := s.byName[at.Agent]
	s.mu.Lock()
	defer s.mu.Unlock()
	if ag == nil || s.closed {
		return
	}
	s.behind.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cancelWithin)
		defer cancel()
		if err := ag.cancelInTurn(ctx, at); err != nil && !errors.Is(err, errEnded) {
			s.log.WarnContext(ctx, "task of remote agent not canceled", "agent", ag.name, "err", err)
		}
	})
}
