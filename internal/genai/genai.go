// Package genai has what several packages say of agents, tools and models in traces and metrics: names by the
// GenAI conventions of OpenTelemetry (open-telemetry/semantic-conventions-genai v0.1.0, of which nothing is
// stable), and for whom a call is made. It must not know how spans are made.
package genai

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
)

// Attributes of spans and metrics.
const (
	AgentName     = attribute.Key("gen_ai.agent.name")
	Conversation  = attribute.Key("gen_ai.conversation.id")
	ErrorType     = attribute.Key("error.type")
	OperationName = attribute.Key("gen_ai.operation.name")
	ToolCall      = attribute.Key("gen_ai.tool.call.id")
	ToolName      = attribute.Key("gen_ai.tool.name")
	ToolType      = attribute.Key("gen_ai.tool.type")
)

// Values of OperationName. The names of spans begin with them.
const (
	Chat        = "chat"
	Embeddings  = "embeddings"
	ExecuteTool = "execute_tool"
	InvokeAgent = "invoke_agent"
	Plan        = "plan"
)

// Function is the ToolType of a tool that the caller of the model executes.
const Function = "function"

// Agent is the agent for which a call is made. The zero value is none.
type Agent struct {
	Name string
	// Thread is the conversation; empty if it is not known.
	Thread string
}

// Attributes are those of a span that belongs to the agent's work.
func (a Agent) Attributes() []attribute.KeyValue {
	var out []attribute.KeyValue
	if a.Name != "" {
		out = append(out, AgentName.String(a.Name))
	}
	if a.Thread != "" {
		out = append(out, Conversation.String(a.Thread))
	}
	return out
}

type (
	agentKey struct{}
	toolKey  struct{}
)

// WithAgent returns a context whose calls are made for an agent.
func WithAgent(ctx context.Context, a Agent) context.Context {
	return context.WithValue(ctx, agentKey{}, a)
}

// AgentOf is the agent for which the calls of ctx are made.
func AgentOf(ctx context.Context) Agent {
	a, _ := ctx.Value(agentKey{}).(Agent)
	return a
}

// WithTool returns a context whose span is that of the execution of a tool.
func WithTool(ctx context.Context) context.Context { return context.WithValue(ctx, toolKey{}, true) }

// IsTool reports whether the calls of ctx are a part of the execution of a tool that has a span.
func IsTool(ctx context.Context) bool { return ctx.Value(toolKey{}) != nil }
