package a2a

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/wait"
	"github.com/epigraph-run/epigraph/workgraph"
)

// caller calls one agent. A call asks for a run whose steps are durable: one sends the message, others
// follow the task by its id, ask and answer. So nothing is sent twice after a crash, and a task that
// waits holds nothing here.
type caller struct{ ag *agent }

// request is the input of that run.
type request struct {
	Agent   string `json:"agent"`
	Parts   []part `json:"parts"`
	Context string `json:"context,omitempty"`
	// Alone says that no other call has the context.
	Alone bool `json:"alone,omitempty"`
	// MessageID is the same for every attempt of one intent.
	MessageID string `json:"message_id"`
	EffectKey string `json:"effect_key"`
}

// maxContext bounds the id of a context, maxGiven the text of a caller that stands for one, in bytes.
const maxContext, maxGiven = 256, 300

// Call implements workgraph.Actor.
func (a caller) Call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var args struct {
		Message json.RawMessage `json:"message"`
		Data    json.RawMessage `json:"data"`
		Context string          `json:"context"`
		Timeout string          `json:"timeout"`
	}
	cfg := &a.ag.cfg
	if n := len(c.Named["message"]) + len(c.Named["data"]); n > int(cfg.MaxRequestBytes) {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonRequestSize, "the message has %d bytes, at most %d are sent to the remote agent %q", n, int64(cfg.MaxRequestBytes), a.ag.name)
	}
	if err := actor.Decode(c.Named, &args); err != nil {
		return workgraph.Outcome{}, err
	}
	if len(args.Context) > maxGiven {
		return workgraph.Outcome{}, actor.BadArguments("context has %d bytes, the limit is %d", len(args.Context), maxGiven)
	}
	conversation, err := a.ag.contextOf(actor.NamespaceOf(ctx), args.Context)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	parts, err := partsOf(args.Message, args.Data)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	timeout, err := wait.Timeout(args.Timeout)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	if most := workgraph.Duration(cfg.TaskTimeout); timeout <= 0 || timeout > most {
		timeout = most
	}
	r := request{Agent: a.ag.name, Parts: parts, Context: conversation, MessageID: stableID("message", c.EffectKey()), EffectKey: c.EffectKey()}
	switch {
	case r.Context != "" || cfg.OwnContexts:
	case c.Thread != "":
		r.Context = stableID("thread", actor.NamespaceOf(ctx), c.Thread, a.ag.name)
	default:
		r.Context, r.Alone = stableID("call", c.EffectKey()), true
	}
	in, err := actor.Encode(r)
	if err != nil {
		return workgraph.Outcome{}, actor.BadArguments("%v", err)
	}
	effect := c.Effect
	if effect == workgraph.Idempotent || effect == "" { // the node says nothing else
		effect = cfg.Effect
	}
	return workgraph.Outcome{Wait: &workgraph.Wait{Children: &workgraph.Children{AsResult: true, Timeout: timeout, Runs: []workgraph.Child{{
		Graph: graph(effect), Input: workgraph.Input{Named: map[string]json.RawMessage{"request": in}}, SameDepth: true}}}}}, nil
}

// told is the text by which a namespace goes on with a context whose id the agent gave. What comes
// before the id shows that it was told to this namespace.
func (ag *agent) told(namespace, id string) string {
	return stableID("told", namespace, ag.name, id) + ":" + id
}

// contextOf is the id of the context that the text of a caller stands for, none for none. All
// namespaces have the same credentials at the agent, so a text stands for another context in each.
func (ag *agent) contextOf(namespace, given string) (string, error) {
	if given == "" {
		return "", nil
	}
	if _, id, ok := strings.Cut(given, ":"); ok && given == ag.told(namespace, id) {
		return id, nil
	}
	if ag.cfg.OwnContexts {
		return "", actor.BadArguments("context: the remote agent %q makes the ids of its contexts itself: give the conversation of a task, as the state of its run tells it to this namespace", ag.name)
	}
	return stableID("given", namespace, ag.name, given), nil
}

// stableID is an id that depends on its parts alone, in the form of a UUID of version 8.
func stableID(parts ...string) string {
	b := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// The nodes of the run, and the actors that do them.
const (
	nodeSend, nodeFollow, nodeReply, nodeResult = "send", "follow", "reply", "result"

	actorSend, actorFollow, actorReply, actorResult = "a2a_task/send", "a2a_task/follow", "a2a_task/reply", "a2a_task/result"
)

// GraphName is the name of the graphs of such runs.
const GraphName = "a2a"

// graph is the graph of the run. The effect is that of messages.
func graph(effect workgraph.Effect) *workgraph.Graph {
	retry := workgraph.Retry{MaxAttempts: 20, InitialBackoff: workgraph.Duration(time.Second), MaxBackoff: workgraph.Duration(time.Minute)}
	edge := func(from, to string) workgraph.Edge {
		return workgraph.Edge{From: from, To: to, PassDown: workgraph.PassDown{Mode: workgraph.ResultAsFirstArg}}
	}
	back := func(from string) workgraph.Edge {
		return workgraph.Edge{From: from, To: nodeFollow, Kind: workgraph.BackEdge, When: "true"}
	}
	return &workgraph.Graph{
		Name:  GraphName,
		State: map[string]workgraph.StateKey{statePosition: {}},
		Nodes: []workgraph.Node{
			{ID: nodeSend, Actor: actorSend, Effect: effect, Retry: retry},
			{ID: nodeFollow, Actor: actorFollow, Retry: retry, MaxVisits: workgraph.Unlimited},
			{ID: nodeReply, Actor: actorReply, Effect: effect, Retry: retry, MaxVisits: workgraph.Unlimited},
			{ID: nodeResult, Actor: actorResult},
		},
		Edges: []workgraph.Edge{
			{From: nodeSend, To: nodeFollow}, edge(nodeSend, nodeResult), edge(nodeFollow, nodeReply), edge(nodeFollow, nodeResult),
			back(nodeFollow), back(nodeReply), // what comes before selects it
		},
	}
}
